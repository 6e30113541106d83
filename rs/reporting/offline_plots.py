"""The page that ``dvc plots show`` fills, with its scripts inside, so that it needs no network.

DVC's own page loads Vega, Vega-Lite and Vega-Embed from another machine. They come with ``vl-convert-python``, a
megabyte; so ``make plots`` writes the page into ``.dvc/tmp`` once, and it is no part of the repository.
"""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

from rs.storage import files

PAGE = Path(".dvc/tmp/plots.html")
LICENCES = Path(__file__).with_name("web") / "licences.txt"
VEGA_LITE = "5.20"
"""The series that DVC's templates are written in."""

HTML = """\
<!DOCTYPE html>
<html>
<head>
    <meta charset="utf-8">
    {refresh_tag}
    <title>DVC plots</title>
    <script type="text/plain" id="licences">
%s
    </script>
    <script>
%s
    </script>
</head>
<body>
    {plot_divs}
</body>
</html>
"""
"""DVC writes its plots and, where it is asked to, a tag that loads the page again; not the scripts of its own page."""


def plots_page() -> str:
    """Return the page, with the licences of its scripts."""
    return HTML % (LICENCES.read_text(), vega_embed(VEGA_LITE))


@cache
def vega_embed(vega_lite: str | None = None) -> str:
    """Return Vega-Embed, with Vega and Vega-Lite of this series in it, as a program that can stand in HTML."""
    from vl_convert import javascript_bundle

    bundle = javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=vega_lite)
    program = bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
    return f"(() => {{{program}}})();"  # so that its names are its own


def main() -> None:
    """Write the page, and have this clone's ``dvc plots show`` use it."""
    files.write_text(PAGE, plots_page())
    place = PAGE.relative_to(".dvc").as_posix()
    subprocess.run([sys.executable, "-m", "dvc", "config", "--local", "plots.html_template", place], check=True)


if __name__ == "__main__":
    main()
