"""The documentation as a site: built without a warning, complete without a network, its figures those of the results."""

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PLUGINS = ("material", "mkdocstrings", "mkdocstrings_handlers")
LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|object|embed|link)\b[^>]*?\b(?:src|srcset|href|data)=[\"']?"
    r"(?:https?:)?//[^>]*>",
    re.IGNORECASE,
)
"""A tag that a browser follows by itself; `<a href>` is not one."""
IN_STYLES = re.compile(r"(?:url\(\s*[\"']?|@import\s+[\"'])(?:https?:)?//[^)\s;]*", re.IGNORECASE)
DRAWN_BY_OTHERS = re.compile(r"class=[\"']?mermaid\b|data-md-component=[\"']?source\b")
"""Files that Material's script asks other hosts for: Mermaid's library, and figures of a repository."""


def build(python: str, site: Path) -> None:
    command = [python, "-m", "mkdocs", "build", "--strict", "--site-dir", str(site)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr


def check(site: Path) -> None:
    """Every page is there, the interface is on its pages, and nothing is loaded from another host."""
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    assert {path.relative_to(site).with_suffix(".md") for path in pages} - {Path("404.md")} == {
        path.relative_to(DOCS) for path in DOCS.rglob("*.md") if DOCS / "examples" not in path.parents
    }
    assert 'id="kernels_eval.judge.Judge.evaluate"' in pages[site / "reference" / "api-judge.html"]
    assert 'id="flows.training.training"' in pages[site / "reference" / "api-training.html"]
    found = [(path.name, tag) for path, text in pages.items() for tag in outside(text)]
    styles = list(site.rglob("*.css"))
    assert styles
    found += [(path.name, use) for path in styles for use in IN_STYLES.findall(path.read_text(encoding="utf-8"))]
    assert not found


def outside(html: str) -> list[str]:
    """Return what a browser would load from another host to show a page."""
    return [*LOADED.findall(html), *IN_STYLES.findall(html), *DRAWN_BY_OTHERS.findall(html)]


@pytest.mark.parametrize(
    "html",
    [
        '<script src="https://a.example/x.js"></script>',
        "<link rel=stylesheet href=//a.example/x.css>",
        '<img alt="x" src="http://a.example/x.png">',
        "<style>@import 'https://a.example/x.css'</style>",
        "<style>a { background: url(//a.example/x.png) }</style>",
        '<pre class="mermaid">',
    ],
)
def test_what_is_loaded_from_elsewhere_is_found(html: str):
    assert outside(html)


def test_a_link_that_a_reader_follows_is_none():
    assert not outside('<a href="https://a.example">x</a><script src="assets/x.js"></script><link href="x.css">')


def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path: Path):
    if not all(map(importlib.util.find_spec, PLUGINS)):
        pytest.skip("pip install -e '.[docs]'")
    build(sys.executable, tmp_path / "site")
    check(tmp_path / "site")


@pytest.mark.slow
def test_the_extra_docs_alone_builds_the_site(tmp_path: Path):
    """The pinned versions fit together, and the interface's pages need none of the packages that they describe."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = str(tmp_path / "venv" / "bin" / "python")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = project["optional-dependencies"]["docs"]
    install = [python, "-m", "pip", "install", "-q", "-c", "deployments/constraints.txt", *wanted]
    done = subprocess.run(install, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)
    if done.returncode and re.search(r"[Cc]onnection|[Tt]imeout|resolve host|name resolution", done.stderr):
        pytest.skip("no package index answers")
    assert done.returncode == 0, done.stderr
    build(python, tmp_path / "site")
    check(tmp_path / "site")


def test_what_the_packages_are_is_pinned():
    pins = (ROOT / "deployments" / "constraints.txt").read_text(encoding="utf-8")
    assert all(f"\n{name}==" in pins for name in ("mkdocs", "mkdocs-material", "mkdocstrings", "mkdocstrings-python"))
