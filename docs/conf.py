"""How Sphinx builds the pages into a site: ``make docs``."""

import re
import shutil
from importlib import metadata
from pathlib import Path

import latex2mathml.converter
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util.inspect import TypeAliasForwardRef
from sphinx.writers.html5 import HTML5Translator
from typer.testing import CliRunner

import rs
from rs.command_line import main
from rs.errors import DISTRIBUTION

ROOT = Path(__file__).parents[1]

project = "rs"
release = version = metadata.version(DISTRIBUTION)
html_title = "rs: certified robustness by randomized smoothing"
html_theme = "furo"
html_show_sourcelink = False
html_show_copyright = False
html_math_renderer = "mathml"  # browsers draw it themselves: nothing is loaded from elsewhere
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["tuning"]
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 300  # seconds

highlight_language = "none"  # of equations in docstrings; other blocks name their language
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # of pages that continue after the title with a list of others

add_module_names = False  # the section of a module says its name
autodoc_typehints = "description"
autodoc_type_aliases = {name: name for name in ("ArrayLike", "Bounds", "Floats", "ImageLike")}
autodoc_member_order = "bysource"

PLAIN = {"COLUMNS": "80", "NO_COLOR": "1"}
"""Variables with which a command prints its help."""

NOT_FOR_IMPORT = ("command_line", "reporting", "runtime", "study")
"""Packages that only commands and stages use."""

SECTION = """{level} {module}

```{{eval-rst}}
.. automodule:: {module}
   :members:
   :special-members: __call__
```
"""
"""The description of a module, in the page of its package."""

LINK_TO_REPORT = re.compile(
    r"\[(!\[[^\]]*\]\([^)]*\)|[^\[\]]+)\]\(\.\./reports/([\w-]+)/index\.html\)"
)

BADGE = re.compile(r"^!\[[^\]]*\]\(https?:[^)]*\)\n", re.MULTILINE)
"""A picture that another host draws."""

FROM_ROOT = {"index": "README.md", "contributing": "CONTRIBUTING.md", "changes": "CHANGELOG.md"}
"""Pages of the site that are files of the root folder, where people look for them on the disk."""


def copy_notebooks(app: Sphinx, config: Config) -> None:
    """Copy the notebooks of ``examples`` into ``docs/examples``, where Sphinx finds them."""
    shutil.copytree(
        ROOT / "examples",
        ROOT / "docs/examples",
        ignore=shutil.ignore_patterns("slurm", "*.py"),
        dirs_exist_ok=True,
    )


def write_reference(app: Sphinx, config: Config) -> None:
    """Write a page for each package of ``rs``, with a section for each of its modules."""
    folder = ROOT / "docs/api"
    folder.mkdir(exist_ok=True)
    for package in (ROOT / "rs").glob("*/__init__.py"):
        if package.parent.name in NOT_FOR_IMPORT:
            continue
        sections = []
        for path in sorted(package.parent.rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            module = name.removesuffix(".__init__")
            level = "#" if path == package else "##"
            sections.append(SECTION.format(level=level, module=module))
        text = "\n".join(sections)
        (folder / f"{package.parent.name}.md").write_text(text, encoding="utf-8")


def leave_out_public_names(
    app: Sphinx, kind: str, name: str, value: object, skip: bool, options: object
) -> bool | None:
    """Leave out of a module what the page of ``rs`` describes."""
    module = app.env.temp_data.get("autodoc:module")
    return True if rs.MODULES.get(name) == module else None


def prepare_docstring(
    app: Sphinx, kind: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Show indented equations as they are written, and leave values their whole first line."""
    if kind in ("attribute", "data", "property"):
        lines.insert(0, "")  # before a colon in the first line, Napoleon expects a type
    for number in range(len(lines) - 1, 1, -1):
        before, empty, line = lines[number - 2 : number + 1]
        is_text = before[:1] not in ("", " ", "-") and not before.endswith("::")
        if is_text and not empty and line.startswith("    "):
            lines[number:number] = ["::", ""]


def copy_reports(app: Sphinx, error: Exception | None) -> None:
    """Copy the interactive reports into the site."""
    for report in (ROOT / "reports").glob("*/index.html"):
        shutil.copy(report, app.outdir / f"report-{report.parent.name}.html")


def read_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Put a file of the root folder before what ``docs`` has of its page, without its badges, and
    make links between both kinds work.
    """
    if page in FROM_ROOT:
        text = (ROOT / FROM_ROOT[page]).read_text(encoding="utf-8")
        text = BADGE.sub("", text)
        source[0] = re.sub(r"\]\((?!https?:|#)", "](../", text) + "\n" + source[0]
    is_notebook = page.startswith("examples/")
    if is_notebook:  # its code reads files of docs, too
        source[0] = source[0].replace("../docs/", "../")
    source[0] = source[0].replace("](../docs/", "](")
    source[0] = re.sub(r"\]\(\.\./(examples/\w+\.ipynb)", r"](\1", source[0])
    for name, file in FROM_ROOT.items():
        source[0] = source[0].replace(f"](../{file}", f"]({name}.md")
    source[0] = LINK_TO_REPORT.sub(r'<a href="report-\2.html">\1</a>', source[0])
    if not is_notebook:  # other files of the root folder are files to look at, not pages
        source[0] = re.sub(r"\]\((\.\./[^)#]+\.md)(#[^)]*)?\)", r"](path:\1)", source[0])


def add_commands(app: Sphinx, page: str, source: list[str]) -> None:
    """Add the help of each command to the page of commands."""
    if page != "commands":
        return
    for name in main.COMMANDS:
        shown = CliRunner().invoke(main.app, [name, "--help"], prog_name="rs", env=PLAIN)
        source[0] += f"\n## rs {name}\n\n```text\n{shown.stdout}\n```\n"


def write_formula(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line as MathML."""
    translator.body.append(latex2mathml.converter.convert(node.astext()))
    raise nodes.SkipNode


def write_equation(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on a line of its own as MathML."""
    translator.body.append(latex2mathml.converter.convert(node.astext(), display="block"))
    raise nodes.SkipNode


def name_of(alias: TypeAliasForwardRef) -> str:
    """Return the name of a type of :data:`autodoc_type_aliases`."""
    return alias.name


def setup(app: Sphinx) -> None:
    """Connect the above."""
    TypeAliasForwardRef.__repr__ = name_of  # which Sphinx shows of a union
    app.add_html_math_renderer("mathml", (write_formula, None), (write_equation, None))
    app.connect("config-inited", copy_notebooks)
    app.connect("config-inited", write_reference)
    app.connect("autodoc-skip-member", leave_out_public_names)
    app.connect("autodoc-process-docstring", prepare_docstring, priority=400)  # before Napoleon
    app.connect("build-finished", copy_reports)
    app.connect("source-read", read_page)
    app.connect("source-read", add_commands)
