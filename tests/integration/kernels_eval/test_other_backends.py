"""TileLang, CuTe DSL and HIP without a GPU: real compilers in the real sandbox; nothing runs, and the verdict says so.

Each part needs its package, or hipcc where candidates may read it (`/usr`, `/opt` or the interpreter's packages).
"""

import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernels_eval import Judge, JudgeConfig, Status
from kernels_eval.backends import backend_named
from kernels_eval.errors import InputError

sys.path.insert(0, str(Path(__file__).parents[2] / "gpu"))
import other_backend_sources as sources

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
TARGETS = {"tilelang": ("cuda:90",), "cute": ("cuda:90", "cuda:80"), "hip": ("hip:gfx90a",)}


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=1, device="cpu", compile_timeout_s=120.0)) as judge:
        yield judge


@pytest.fixture(params=sources.HONEST)
def backend(request: pytest.FixtureRequest) -> str:
    reason = backend_named(request.param).unavailable("cpu", TARGETS[request.param])
    if reason is not None:
        pytest.skip(reason)
    return str(request.param)


def test_compiled_and_not_run(judge: Judge, backend: str) -> None:
    settings = {"targets": TARGETS[backend]}
    verdict = judge.submit(sources.PROBLEM, sources.HONEST[backend], backend, settings).result()
    assert (verdict.status, verdict.error_category) == (Status.RUNTIME_ERROR, "not_run_without_gpu"), verdict
    assert (verdict.compiled, verdict.correct) == (True, False)
    assert tuple(used.architecture for used in verdict.resources) == TARGETS[backend]
    assert all(used.kernel.startswith(sources.KERNELS[backend]) for used in verdict.resources)
    assert all(used.registers for used in verdict.resources)


def test_the_compilers_words(judge: Judge, backend: str) -> None:
    settings = {"targets": TARGETS[backend]}
    verdict = judge.submit(sources.PROBLEM, sources.not_compiling(backend), backend, settings).result()
    category = "hipcc_compile" if backend == "hip" else f"{backend}_compile"
    assert (verdict.status, verdict.error_category) == (Status.COMPILE_ERROR, category), verdict
    assert "no_such_function" in (verdict.error_message or "")
    assert "line " in (verdict.error_message or "")


def test_host_code_that_needs_a_gpu_is_not_said_to_compile(judge: Judge, backend: str) -> None:
    if backend == "hip":
        pytest.skip("its host code is not followed")
    source = sources.HONEST[backend].replace(
        "(self, x, y):\n", "(self, x, y):\n        torch.cuda.memory_stats()['x']\n"
    )
    verdict = judge.evaluate(sources.PROBLEM, source, backend=backend)
    assert (verdict.status, verdict.error_category) == (Status.RUNTIME_ERROR, "not_run_without_gpu"), verdict
    assert not verdict.compiled
    assert (verdict.error_message or "").startswith("no kernel was compiled: ")


def test_a_candidate_without_kernels(judge: Judge, backend: str) -> None:
    settings = {"targets": TARGETS[backend]}
    source = "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x, y):\n        return x @ y.t()\n"
    verdict = judge.submit(sources.PROBLEM, source, backend, settings).result()
    assert verdict.status is Status.COMPILE_ERROR, verdict
    assert verdict.error_category in ("no_kernel", "no_extension")


@pytest.mark.parametrize(("name", "package"), [("tilelang", "tilelang"), ("cute", "nvidia-cutlass-dsl")])
def test_a_package_that_is_missing_is_named(judge: Judge, name: str, package: str) -> None:
    if find_spec(sources.PACKAGES[name]) is not None:
        pytest.skip("it is installed")
    with pytest.raises(InputError, match=f"backend {name}: the package {package} is not installed: pip install"):
        judge.evaluate(sources.PROBLEM, sources.HONEST[name], backend=name)


def test_hipcc_that_is_missing_is_named(judge: Judge) -> None:
    if shutil.which("hipcc") is not None:
        pytest.skip("it is installed")
    with pytest.raises(InputError, match=r"backend hip: judge\.targets: expected one such as `hip:gfx942`"):
        judge.evaluate(sources.PROBLEM, sources.HIP, backend="hip")
    with pytest.raises(InputError, match="hipcc is not on this machine; it comes with ROCm"):
        judge.submit(sources.PROBLEM, sources.HIP, "hip", {"targets": ("hip:gfx942",)}).result()
