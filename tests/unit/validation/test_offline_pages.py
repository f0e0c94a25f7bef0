"""Data Docs without internet: nothing of other hosts, a list of pages with links that lead somewhere."""

import re
from pathlib import Path

from tasks.validation.offline_pages import make_offline

PAGE = """<html><head><title>t</title>
<link rel="stylesheet" href="https://cdn.example.com/a.css">
<style>.brand { background: url('https://cdn.example.com/logo.png'); }</style>
<script src="https://cdn.example.com/a.js"></script></head>
<body><a href="../../../../index.html"><img src="https://cdn.example.com/logo.png" alt="logo"></a>
<p>Status: <i class="fas fa-times"></i> Failed</p><script>$("x").hide()</script>
<footer><a href="https://example.com/newsletter">Subscribe</a></footer></body></html>"""


def test_pages_keep_their_text_and_nothing_of_other_hosts(tmp_path: Path) -> None:
    page = tmp_path / "validations" / "turns_raw" / "__none__" / "1" / "tables-turns_raw.html"
    for path in (page, tmp_path / "expectations" / "turns_raw.html", tmp_path / "index.html"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(PAGE)
    make_offline(tmp_path, {"turns_raw": False, "groups <published>": True})
    for path in tmp_path.rglob("*.html"):
        assert re.findall(r"https?://|<script|<link|<img", path.read_text()) == []
        assert path.read_text().count("<style>") == 1
    assert "Failed" in page.read_text()
    index = (tmp_path / "index.html").read_text()
    links = re.findall(r'href="([^"]*)"', index)
    assert "validations/turns_raw/__none__/1/tables-turns_raw.html" in links
    assert "groups &lt;published&gt;" in index
    assert index.count("fa-times") - index.count(".fa-times") == 1
