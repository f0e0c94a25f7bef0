"""The checker of English finds long sentences and docstrings "X: what …", and our pages have neither."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools"))
import plain_english

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / name for name in ("README.md", "AGENTS.md", "CONTRIBUTING.md")),
    *(page for page in (ROOT / "docs").rglob("*.md") if "reference" not in page.parts),
]
"""Pages that people write."""
PACKAGES = ("flows", "extras", "tasks", "kernels_eval", "tools", "benchmarks", "docs/examples")
WAITING = {
    "flows/cli/inspecting.py", "flows/cli/proposing.py", "kernels_eval/config.py", "kernels_eval/cpu/session.py",
    "kernels_eval/cpu/submitted_file.py", "kernels_eval/gpu/timing/statistics.py", "kernels_eval/inspector.py",
    "kernels_eval/interpreter/triton_patches/undefined_lanes.py", "kernels_eval/sandbox/messages.py",
    "tasks/problems/modules/mistakes.py", "tasks/trajectories/groups.py", "tasks/update/advantages.py",
    "tasks/update/past.py",
}  # fmt: skip
"""Modules that have such a docstring still: take a name away once it is rewritten, add none."""
LONG = " ".join(["word"] * 26)


def test_our_pages_are_plain():
    assert len(PAGES) > 50
    assert not {str(page.relative_to(ROOT)): found for page in PAGES if (found := plain_english.findings(page))}


def test_no_further_docstring_says_what():
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if plain_english.findings(path)
    }
    assert found <= WAITING


def test_the_readme_is_read_in_two_minutes():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 500


@pytest.mark.parametrize(
    ("page", "number"),
    [
        (f"{LONG}.", 1),
        (f"- {LONG}.\n- {LONG}.", 2),
        (f"{LONG[:60]}\n{LONG[60:]}.", 1),
        (f"{LONG[:60]}. And {LONG[60:]}.", 0),
        (f"```\n{LONG}\n```", 0),
        (f"| {LONG} |", 0),
        (f"# {LONG}", 0),
        (f"    {LONG}", 0),
        (f"A `{LONG}` is one word.", 0),
        (f"[{LONG}](page.md) counts.", 1),
        (f"Short [link]({'x' * 300}.md).", 0),
    ],
)
def test_long_sentences_of_a_page(page: str, number: int):
    assert len(list(plain_english.page_findings(page))) == number


@pytest.mark.parametrize(
    ("docstring", "is_found"),
    [
        ("Statistics of time: what rounds agree on.", True),
        ("Landlock: Which files it opens.", True),
        ("Return the time on which rounds agree.", False),
        ("Limits of a candidate: memory, time, files.", False),
        ("Return what rounds agree on: a time.", False),
    ],
)
def test_docstrings_that_say_what(docstring: str, is_found: bool):
    for source in (f'"""{docstring}"""', f'def f():\n    """{docstring}"""', f'x = 1\n"""{docstring}"""'):
        assert bool(list(plain_english.docstring_findings(source))) == is_found


def test_a_finding_names_file_line_and_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\nShort.\n\n{LONG}.\n")
    assert plain_english.main([str(page)]) == 1
    assert capsys.readouterr().out.startswith(f"{page}:5: 26 words: word")
    page.write_text("Short.\n")
    assert plain_english.main([str(page)]) == 0
    assert plain_english.main([]) == 2
