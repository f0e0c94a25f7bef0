"""CuTe DSL: names, what is missing, and whose exception it is. Its compiling: tests/integration, with the package."""

import importlib.util
import linecache

import pytest

from kernels_eval.backends import cute
from kernels_eval.sandbox.candidate_source import FILE_NAME

BACKEND = cute.BACKEND


def test_own_kernels() -> None:
    assert BACKEND.own_kernels("@cute.kernel\ndef add(x): pass") == {"kernel_cutlass_add_*"}


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    said = "the package nvidia-cutlass-dsl is not installed: pip install nvidia-cutlass-dsl"
    assert BACKEND.unavailable("cpu", ()) == said


class DSLBaseError(Exception):
    """As the DSL calls its errors."""


class DSLCudaRuntimeError(DSLBaseError):
    """As the DSL calls an error of the device."""


def test_whose_exception_it_is() -> None:
    assert BACKEND.compile_failure(DSLBaseError("bad")) is not None
    assert BACKEND.compile_failure(DSLCudaRuntimeError("illegal address")) is None
    assert BACKEND.compile_failure(KeyError("x")) is None


def test_the_message_has_the_candidates_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["a\n", "    out[i] = missing\n"]
    monkeypatch.setitem(linecache.cache, FILE_NAME, (0, None, lines, FILE_NAME))
    text = (
        "\n\x1b[91merror:\x1b[0m NameError in `h`: name 'missing' is not defined\n \x1b[94m-->\x1b[0m kernel.py:2\n  |"
    )
    failed = BACKEND.compile_failure(DSLBaseError(text))
    assert str(failed) == "NameError in `h`: name 'missing' is not defined (line 2: out[i] = missing)"
