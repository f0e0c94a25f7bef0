"""A candidate's source is loaded as a module with lines; each way to fail has its category and names its own lines."""

import inspect

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.sandbox.candidate_source import CandidateError, describe, load_source
from kernels_eval.sandbox.messages import FailedAnswer


def failure_of(source: str) -> FailedAnswer:
    """Return the answer that a source gives which cannot be loaded."""
    with pytest.raises(CandidateError) as caught:
        load_source(source)
    return FailedAnswer(**caught.value.header)


def raised_by(source: str, name: str) -> BaseException:
    """Return the exception that a function of a candidate raises."""
    module = load_source(source)
    with pytest.raises(Exception, match=r".") as caught:
        getattr(module, name)()
    return caught.value


def test_functions_have_their_source() -> None:
    first = load_source("def f():\n    return 1\n")
    assert first.f() == 1
    second = load_source("x = 3\n\n\ndef g():\n    return x\n")
    assert second.g() == 3
    assert inspect.getsourcelines(second.g) == (["def g():\n", "    return x\n"], 4)
    assert not hasattr(second, "f"), "the second candidate sees nothing of the first"


@pytest.mark.parametrize(
    ("source", "category", "words"),
    [
        ("x = 1\ny = (\n", "syntax_error", "(line 2: y = ()"),
        ("x = 1\n  y = 2\n", "syntax_error", "IndentationError: unexpected indent (line 2: y = 2)"),
        ("x = '\0'", "syntax_error", "null bytes"),
        ("x = " + "(" * 5000 + ")" * 5000, "syntax_error", ""),
        ("import triton\nimport kernels_that_nobody_wrote\n", "import_error", "(line 2: import kernels_that"),
        ("from math import no_such_name", "import_error", "no_such_name"),
        ("def f():\n    return 1 / 0\n\n\nf()\n", "load_error", "(line 2: return 1 / 0; called from line 5: f())"),
        ("import sys\nsys.exit(0)", "load_error", "SystemExit: 0 (line 2"),
        ("raise KeyboardInterrupt", "load_error", "KeyboardInterrupt"),
    ],
)
def test_each_way_not_to_load_has_its_category(source: str, category: str, words: str) -> None:
    failed = failure_of(source)
    assert (failed.status, failed.category) == ("compile_error", category)
    assert words in failed.message


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_any_text_loads_or_fails_with_an_answer_that_fits_the_schema(text: str) -> None:
    failed = None
    try:
        load_source(f"{text!r}\n{text[:1]}")
    except CandidateError as error:
        failed = FailedAnswer(**error.header)
    assert failed is None or failed.category in ("syntax_error", "load_error")


def test_a_message_is_cut_to_one_line_that_fits() -> None:
    failed = failure_of("text = 'a' * 10_000 + '\\nsecond line'\nraise ValueError(text)")
    assert failed.message.startswith("ValueError: aaa")
    assert "second" not in failed.message
    assert 500 < len(failed.message) <= 1200
    assert failed.message.endswith("(line 2: raise ValueError(text))")


def test_a_description_names_own_lines_only_innermost_first_and_at_most_four() -> None:
    deep = (
        "import json\n"
        + "".join(f"def f{n}():\n    f{n + 1}()\n" for n in range(6))
        + "def f6():\n    json.loads('[')\n"
    )
    text = describe(raised_by(deep, "f0"))
    assert text.startswith("JSONDecodeError: Expecting value")
    assert text.endswith(
        "(line 15: json.loads('['); called from line 13: f6(); called from line 11: f5(); called from line 9: f4())"
    )


def test_an_error_without_own_lines_is_its_type_and_message() -> None:
    assert describe(ValueError("no\nmore")) == "ValueError: no"


def test_an_exception_that_does_not_say_what_it_is_is_described() -> None:
    module = load_source("class E(Exception):\n    def __str__(self):\n        raise KeyError(1)\n")
    assert describe(module.E()) == "E: its message cannot be had: __str__ raised KeyError"
