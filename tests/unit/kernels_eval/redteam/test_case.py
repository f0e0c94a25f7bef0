"""Case files: what is read from them, and the error of each way to get one wrong."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.errors import InputError
from kernels_eval.problem import CANDIDATE_LINE, split_source
from kernels_eval.redteam.case import REFUSED, Case, read_case
from kernels_eval.verdict import Status

PROBLEM = """
class Model: ...


def get_inputs(): ...


def get_init_inputs(): ...


"""
KERNEL = "import torch\n\n\nclass ModelNew: ...\n"


def read(folder: Path, header: str, kind: str = "cache") -> Case:
    path = folder / "case.py"
    path.write_text(f'"""{header}\n"""\n{PROBLEM}{CANDIDATE_LINE}\n{KERNEL}')
    return read_case(path, kind)


def test_a_hack_with_every_field(tmp_path: Path) -> None:
    header = "by shape\n\nA note: on the case.\n\nexpect: correct or refused\nmost_speedup: 2.5\nsettings: policy=mixed, trials=3"
    case = read(tmp_path, header)
    assert (case.name, case.kind, case.is_honest, case.path) == ("by shape", "cache", False, tmp_path / "case.py")
    assert case.expected == ("correct", *REFUSED)
    assert case.most_speedup == 2.5
    assert case.settings == {"policy": "mixed", "trials": "3"}
    assert case.kernel == KERNEL
    assert case.problem.startswith('"""by shape')
    assert case.problem.endswith("def get_init_inputs(): ...\n")


def test_an_honest_kernel_with_one_field(tmp_path: Path) -> None:
    case = read(tmp_path, "softmax\n\nexpect: correct", "honest")
    assert case.is_honest
    assert (case.expected, case.settings, case.most_speedup) == (("correct",), {}, None)


def test_refused_is_every_status_of_a_wrong_kernel(tmp_path: Path) -> None:
    expected = read(tmp_path, "zeros\n\nexpect: refused").expected
    assert set(expected) == set(Status) - {Status.CORRECT, Status.INFRASTRUCTURE_ERROR}


@pytest.mark.parametrize(
    ("header", "error"),
    [
        ("", "docstring: expected a name, an empty line and `expect: …`, found ''"),
        ("by shape", "docstring: expected a name, an empty line and `expect: …`, found 'by shape'"),
        (
            "by shape\n\nexpects: refused",
            "docstring: expected expect, settings, most_speedup, once each, found 'expects: ",
        ),
        ("by shape\n\nexpect: refused\nexpect: correct", "once each, found 'expect: correct'"),
        ("by shape\n\nmost_speedup: 2", "expect: expected refused or statuses of a verdict, found ''"),
        ("by shape\n\nexpect: caught", "expect: expected refused or statuses of a verdict, found 'caught'"),
        ("by shape\n\nexpect: refused\nmost_speedup: fast", "most_speedup: expected a number, found 'fast'"),
        ("by shape\n\nexpect: refused\nsettings: polite=mixed", "settings: settings.polite: expected one of backend, "),
        (
            "by shape\n\nexpect: refused\nsettings: policy=lax",
            "settings: policy: found 'lax', expected 'strict' or 'mixed'",
        ),
        ("by shape\n\nexpect: refused\nsettings:", "settings: settings.: expected one of backend, "),
    ],
)
def test_a_malformed_header_names_file_and_field(tmp_path: Path, header: str, error: str) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, header)
    assert str(raised.value).startswith(f"{tmp_path / 'case.py'}: ")
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_problem_that_lacks_a_function_is_named(tmp_path: Path) -> None:
    path = tmp_path / "case.py"
    path.write_text(f'"""zeros\n\nexpect: refused\n"""\nclass Model: ...\n{CANDIDATE_LINE}\n{KERNEL}')
    with pytest.raises(InputError, match=r"case\.py: expected a KernelBench problem .*missing: get_inputs"):
        read_case(path, "cache")


@pytest.mark.parametrize(("text", "found"), [(PROBLEM, 0), (f"{PROBLEM}{CANDIDATE_LINE}\na\n{CANDIDATE_LINE}\nb\n", 2)])
def test_the_line_between_the_parts_occurs_once(text: str, found: int) -> None:
    with pytest.raises(
        InputError, match=rf"^x\.py: expected one line .* between problem and candidate, found {found}$"
    ):
        split_source(text, "x.py")


_LINES = st.lists(
    st.text(st.characters(exclude_characters="\n\r")).filter(lambda line: line.rstrip() != CANDIDATE_LINE)
)


@given(_LINES, _LINES)
def test_splitting_gives_both_parts_back(above: list[str], below: list[str]) -> None:
    problem, kernel = split_source("\n".join([*above, CANDIDATE_LINE, *below]), "x.py")
    assert problem.strip("\n") == "\n".join(above).rstrip("\n").strip("\n")
    assert kernel.strip("\n") == "\n".join(below).strip("\n")
