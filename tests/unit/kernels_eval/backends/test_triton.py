"""Triton as a back end: names of kernels, errors, what compiled kernels use, and caches that are taken over."""

import os
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from kernels_eval.backends.triton import BACKEND, take_over


def test_every_function_may_be_a_kernel_also_one_in_a_string() -> None:
    source = "@triton.jit\ndef rows(x): pass\nclass M:\n    def forward(self): exec('def hidden(x): pass')"
    assert BACKEND.own_kernels(source) == {"rows", "forward", "hidden"}


class OutOfResources(Exception):
    """As Triton calls a kernel that takes more than the device has."""


def test_errors_of_the_compiler_are_told_from_those_of_the_run() -> None:
    failed = BACKEND.compile_failure(OutOfResources("out of resource: shared memory, Required: 300000"))
    assert failed is not None
    assert (failed.header["status"], failed.header["category"]) == ("compile_error", "triton_compile")
    assert "shared memory, Required: 300000" in str(failed)
    assert BACKEND.compile_failure(RuntimeError("an illegal memory access was encountered")) is None


def test_a_module_without_compiled_kernels_uses_nothing() -> None:
    module = ModuleType("candidate")
    module.__dict__.update(number=1, kernel=SimpleNamespace())
    assert BACKEND.resources(module) == []


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_it_runs_with_and_without_a_gpu(device: str) -> None:
    assert BACKEND.unavailable(device, ()) is None


def cache_of(folder: Path) -> Path:
    """Make a cache of one kernel, as Triton writes it."""
    kernel = folder / "triton" / "KERNEL"
    kernel.mkdir(parents=True)
    (kernel / "add.cubin").write_bytes(b"cubin")
    (kernel / "__grp__add.json").write_text("{}")
    return folder / "triton"


def test_a_cache_that_was_compiled_ahead_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache_of(tmp_path)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "own"))
    BACKEND.install({"cache": str(tmp_path)})
    assert sorted(path.name for path in (tmp_path / "own" / "KERNEL").iterdir()) == ["__grp__add.json", "add.cubin"]
    BACKEND.install({"cache": None})
    BACKEND.install({})
    BACKEND.install({"cache": str(tmp_path / "removed")})


@pytest.mark.parametrize("kind", ["pipe", "link", "linked folder", "large"])
def test_what_else_lies_in_a_cache_ends_the_copy_and_leaves_no_kernel_half(tmp_path: Path, kind: str) -> None:
    cache = cache_of(tmp_path)
    hostile = cache / "KERNEL" / "add.ptx"
    if kind == "pipe":
        os.mkfifo(hostile)
    elif kind == "link":
        hostile.symlink_to("/etc/passwd")
    elif kind == "linked folder":
        (cache / "OTHER").symlink_to("/etc")
    else:
        with hostile.open("wb") as file:
            file.truncate(1 << 30)
    own = tmp_path / "own"
    take_over(cache, own)
    taken = {path.name for path in own.rglob("*") if path.is_file()}
    assert taken <= {"add.cubin"}, "without its list of files a kernel is compiled at launch"
