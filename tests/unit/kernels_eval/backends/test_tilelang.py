"""TileLang: names, what is missing, and whose exception it is. Its compiling: tests/integration, with the package."""

import importlib.util
from types import SimpleNamespace
from typing import Any

import pytest

from kernels_eval.backends import tilelang

BACKEND = tilelang.BACKEND


def test_own_kernels() -> None:
    source = "@T.prim_func\ndef rows(A): pass\nclass ModelNew:\n    def forward(self, x): pass"
    assert BACKEND.own_kernels(source) >= {"rows_kernel", "rows_kernel_*"}


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert BACKEND.unavailable("cuda", ()) == "the package tilelang is not installed: pip install tilelang"
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: SimpleNamespace())
    monkeypatch.setattr("shutil.which", lambda *_, **__: None)
    assert "install the CUDA toolkit" in (BACKEND.unavailable("cpu", ()) or "")
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/usr/local/cuda/bin/nvcc")
    assert BACKEND.unavailable("cpu", ()) is None


def raised_in(*files: str, message: str = "m") -> BaseException:
    """Return an exception that passed functions of these files, the outermost first."""
    call: Any = None
    for file in reversed(files):
        text = "def f(*a):\n    raise RuntimeError(message)\n" if call is None else "def f(*a):\n    inner()\n"
        names: dict[str, Any] = {"inner": call, "message": message}
        exec(compile(text, file, "exec"), names)
        call = names["f"]
    try:
        call()
    except RuntimeError as error:
        return error
    raise AssertionError


ROOT = "/x/site-packages/tilelang/"


@pytest.mark.parametrize(
    ("files", "compiler"),
    [
        (["kernel.py", f"{ROOT}jit/__init__.py", f"{ROOT}language/eager/builder.py", "kernel.py"], True),
        (["kernel.py", f"{ROOT}jit/kernel.py", f"{ROOT}contrib/nvcc.py"], True),
        (["kernel.py", f"{ROOT}jit/adapter/tvm_ffi.py", f"{ROOT}3rdparty/tvm/runtime/executable.py"], False),
        (["kernel.py", f"{ROOT}jit/__init__.py"], False),
        (["kernel.py", "/x/site-packages/torch/nn/modules/module.py"], False),
    ],
)
def test_whose_exception_it_is(files: list[str], compiler: bool) -> None:
    failed = BACKEND.compile_failure(raised_in(*files))
    assert (failed is not None) == compiler
    assert failed is None or failed.header["category"] == "tilelang_compile"


def test_the_words_of_nvcc() -> None:
    said = (
        'source\nCompilation error:\n/a/b/k.cu(21): error: identifier "f" is undefined\n\n1 error detected\nCommand: x'
    )
    failed = BACKEND.compile_failure(raised_in("kernel.py", f"{ROOT}contrib/nvcc.py", message=said))
    assert str(failed) == 'k.cu(21): error: identifier "f" is undefined'
