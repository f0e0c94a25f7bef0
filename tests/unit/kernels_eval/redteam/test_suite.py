"""The suite: enough cases, each of them well-formed, and docs/hacks.md as the tables say."""

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kernels_eval.errors import InputError
from kernels_eval.redteam import report
from kernels_eval.redteam.case import Case
from kernels_eval.redteam.suite import FOLDER, load_cases, read_cases, read_classes

ROOT = Path(__file__).resolve().parents[4]
UNPARSABLE = {"deep recursion in the source"}
"""Hacks that are no Python."""


def hacks() -> list[Case]:
    return [case for case in load_cases() if not case.is_honest]


def honest() -> list[Case]:
    return [case for case in load_cases() if case.is_honest]


def test_every_file_is_a_case_and_no_name_occurs_twice() -> None:
    files = {path for folder in ("hacks", "honest") for path in (FOLDER / folder).rglob("*.py")}
    assert {case.path for case in load_cases()} == files
    assert len(hacks()) >= 340
    assert len(honest()) >= 270
    assert {case.kind for case in hacks()} == {found.name for found in read_classes(FOLDER).values()}
    assert max(Counter((case.kind, case.name) for case in load_cases()).values()) == 1


def test_honest_kernels_have_to_be_correct_and_hacks_may_not_be_unless_they_gain_nothing() -> None:
    assert {case.expected for case in honest()} == {("correct",)}
    assert all("correct" not in case.expected for case in hacks() if case.most_speedup is None)


def test_each_part_is_complete_source() -> None:
    for case in load_cases():
        if case.name not in UNPARSABLE:
            names = {node.name for node in ast.parse(case.kernel).body if isinstance(node, ast.ClassDef)}
            assert "ModelNew" in names, case.path
            assert "import torch" in case.kernel, case.path


@pytest.mark.parametrize(
    "text", [None, "", "# luck\n", "luck\n\nBy chance.\n\nCaught: never.\n", "# luck\n\nBy chance.\n"]
)
def test_a_class_that_its_readme_does_not_describe_is_named(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "hacks" / "luck" / "by_chance.py"
    path.parent.mkdir(parents=True)
    path.write_text(load_cases()[0].path.read_text())
    if text is not None:
        (path.parent / "README.md").write_text(text)
    with pytest.raises(
        InputError, match=r"luck/README\.md: expected a title \(# class\), a description and a paragraph"
    ):
        read_cases(tmp_path)


def test_a_new_folder_is_a_new_class(tmp_path: Path) -> None:
    path = tmp_path / "hacks" / "pure_luck" / "by_chance.py"
    path.parent.mkdir(parents=True)
    path.write_text(load_cases()[0].path.read_text())
    (path.parent / "README.md").write_text("# pure luck\n\nBy\nchance.\n\nCaught: repeated\ncalls.\n")
    assert [case.kind for case in read_cases(tmp_path)] == ["pure luck"]
    assert [found.description for found in read_classes(tmp_path).values()] == ["By chance."]


def test_cases_are_read_without_torch() -> None:
    code = (
        "import sys; from kernels_eval.redteam.suite import load_cases; load_cases(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "hacks.md").read_text()
    assert page == report.with_table(page), "run: python -m kernels_eval.redteam.report docs/hacks.md"


def test_the_page_names_gpu_cases_that_exist() -> None:
    folder = ROOT / "tools" / "gpu"
    sources = (folder / "gpu_sources.py").read_text()
    page = (ROOT / "docs" / "hacks.md").read_text()
    rows = page.partition("| only on a GPU |")[2].partition("\n\n")[0]
    names = rows.split("`")[1::2]
    assert len(names) > 8
    for name in names:
        part = name.removeprefix("… ").removesuffix(" …")
        assert part in sources, name
