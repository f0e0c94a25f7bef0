"""Links of every page that git tracks: the file is there, and so is the heading that an anchor names."""

import json
import re
import subprocess
import unicodedata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
TRACKED = subprocess.run(
    ["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
)
PAGES = sorted(
    ROOT / name
    for name in TRACKED.stdout.decode().split("\0")
    if name.endswith(".md") and not name.startswith("tests/") and (ROOT / name).exists()
)
LINK = re.compile(r"\]\(([^)\s]*)\)")


def prose(text: str) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^ *```.*?^ *```", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """Return the ids that the site gives to a page's headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page.read_text(encoding="utf-8")), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
        found.add(re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", plain).strip().lower()))
    return found


def broken(page: Path, text: str) -> list[str]:
    """Return the links of a page's text that lead nowhere; other hosts are not asked."""
    found: list[str] = []
    for target in LINK.findall(text):
        if re.match(r"https://[\w.-]+(/|$)", target):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        made = "reference" in file.parts  # api-*.md: headings come from docstrings
        if not file.exists() or (anchor and file.suffix == ".md" and not made and anchor not in anchors(file)):
            found.append(target)
    return found


def test_every_room_of_pages_is_looked_at():
    assert {"README.md", "AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md"} <= {page.name for page in PAGES}
    assert len(PAGES) > 60


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_of_a_page_lead_somewhere(page: Path):
    assert not broken(page, prose(page.read_text(encoding="utf-8")))


def test_files_that_records_link_to_exist():
    for path in (ROOT / "docs" / "lab").glob("*.json"):
        for target in LINK.findall(json.dumps(json.loads(path.read_text(encoding="utf-8")), ensure_ascii=False)):
            assert (path.parent / target.partition("#")[0]).exists(), (path.name, target)


@pytest.mark.parametrize(
    "link", ["nowhere.md", "#no-such-heading", "there.md#no-such-heading", "http://plain.example/x"]
)
def test_a_broken_link_is_found(tmp_path: Path, link: str):
    (tmp_path / "there.md").write_text("# A heading, with `code` and more\n")
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n```\n# no-such-heading\n```\n")
    assert broken(page, f"[x]({link})") == [link]
    assert not broken(page, "[x](there.md#a-heading-with-code-and-more) [y](#page) [z](https://a.example)")
