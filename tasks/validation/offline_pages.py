"""Makes the pages of Great Expectations' Data Docs readable without internet.

As they are written they load styles, scripts and pictures from seven hosts; without them the list of pages is empty.
Here scripts and addresses of other hosts are removed, one style sheet is put into each page, and the list is written
anew.
"""

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path

_STYLE = Path(__file__).with_name("offline_pages.css")
_REMOVED = re.compile(
    r"<script\b.*?</script>|<style\b.*?</style>|<link\b[^>]*>|<footer\b.*?</footer>|<a\b[^>]*>\s*<img\b[^>]*>\s*</a>"
    r"""|<img\b[^>]*["']https?://[^>]*>""",
    re.DOTALL | re.IGNORECASE,
)
"""Scripts, styles, the newsletter, the logo and other pictures from elsewhere."""


def make_offline(site: Path, passed: Mapping[str, bool]) -> None:
    """Rewrite every page of a site; `passed`: by the name of a validated table, whether all of its checks held."""
    style = f"<style>\n{_STYLE.read_text(encoding='utf-8')}</style>\n</head>"
    for page in sorted(site.rglob("*.html")):
        text = _REMOVED.sub("", page.read_text(encoding="utf-8"))
        page.write_text(text.replace("</head>", style, 1), encoding="utf-8")
    rows = "\n".join(_row(site, name, good) for name, good in passed.items())
    (site / "index.html").write_text(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Checks</title>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"{style}<body><h1>Checks</h1>\n<table><tr><th></th><th>checked table</th><th>rules</th></tr>\n{rows}\n</table>"
        "</body></html>\n",
        encoding="utf-8",
    )


def _row(site: Path, name: str, good: bool) -> str:
    """Return the row of a validated table, with links to its results and to its rules."""
    results = sorted((site / "validations" / name).rglob("*.html"))
    shown = escape(name.replace("_", " "))
    link = f'<a href="{results[-1].relative_to(site).as_posix()}">{shown}</a>' if results else shown
    mark = '<i class="fa-check-circle"></i>' if good else '<i class="fa-times"></i>'
    return f'<tr><td>{mark}</td><td>{link}</td><td><a href="expectations/{escape(name)}.html">rules</a></td></tr>'
