"""How Sphinx builds the pages into a site: ``make docs``."""

import re
from importlib import metadata
from pathlib import Path

from sphinx.application import Sphinx

from rs.errors import DISTRIBUTION

ROOT = Path(__file__).parents[1]

project = "rs"
release = version = metadata.version(DISTRIBUTION)
html_title = "rs: certified robustness by randomized smoothing"
html_theme = "furo"
html_show_sourcelink = False
html_show_copyright = False
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxcontrib.mermaid"]
exclude_patterns = ["tuning"]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_fence_as_directive = ["mermaid"]
suppress_warnings = ["myst.header"]  # of pages that continue after the title with a list of others

autodoc_typehints = "description"
autodoc_member_order = "bysource"

FROM_ROOT = {"index": "README.md", "contributing": "CONTRIBUTING.md", "changes": "CHANGELOG.md"}
"""Pages of the site that are files of the root folder, where people look for them on the disk."""


def read_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Put a file of the root folder before what ``docs`` has of its page, and make links between
    both kinds work.
    """
    if page in FROM_ROOT:
        text = (ROOT / FROM_ROOT[page]).read_text(encoding="utf-8")
        source[0] = re.sub(r"\]\((?!https?:|#)", "](../", text) + "\n" + source[0]
    source[0] = source[0].replace("](../docs/", "](")
    for name, file in FROM_ROOT.items():
        source[0] = source[0].replace(f"](../{file}", f"]({name}.md")
    source[0] = re.sub(
        r"\]\((\.\./[^)#]+\.md)", r"](path:\1", source[0]
    )  # files to look at, not pages


def setup(app: Sphinx) -> None:
    """Connect the above."""
    app.connect("source-read", read_page)
