"""TileLang and CuTe DSL on a real GPU, and HIP, which says that it does not run there. Each needs its package.

    python -m pytest tests/gpu/test_other_backends.py

docs/adding-a-backend.md names the packages. Installed beside the interpreter they must lie in a folder called
`site-packages`, which other users may enter: a candidate may read no other one.
"""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernels_eval import Judge, JudgeConfig, Status
from kernels_eval.errors import InputError
from kernels_eval.gpu.device.detection import gpu_name

sys.path.insert(0, str(Path(__file__).parent))
import other_backend_sources as sources

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(gpu_name() is None, reason="needs a GPU"),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=1, device="cuda", compile_timeout_s=90.0)) as judge:
        yield judge


@pytest.fixture(params=sources.PACKAGES)
def backend(request: pytest.FixtureRequest) -> str:
    if find_spec(sources.PACKAGES[request.param]) is None:
        pytest.skip(f"{sources.PACKAGES[request.param]} is not installed")
    return str(request.param)


def test_an_honest_kernel_is_correct_and_timed(judge: Judge, backend: str) -> None:
    verdict = judge.evaluate(sources.PROBLEM, sources.HONEST[backend], backend=backend)
    assert verdict.status is Status.CORRECT, verdict
    assert verdict.timing_source == "gpu"
    assert verdict.profile is not None
    assert verdict.profile.own_share == 1.0
    (kernel,) = verdict.profile.kernels
    assert kernel.name.startswith(sources.KERNELS[backend])
    assert kernel.is_own


def test_an_honest_kernel_passes_the_check_of_dependence(judge: Judge, backend: str) -> None:
    """Under `mixed` the kernels do nothing in one round, and the result must show it."""
    verdict = judge.submit(sources.PROBLEM, sources.HONEST[backend] + "# mixed", backend, {"policy": "mixed"}).result()
    assert verdict.status is Status.CORRECT, verdict


def test_a_wrong_kernel(judge: Judge, backend: str) -> None:
    verdict = judge.evaluate(sources.PROBLEM, sources.wrong(backend), backend=backend)
    assert (verdict.status, verdict.error_category) == (Status.INCORRECT, "wrong_values"), verdict
    assert verdict.compiled


def test_one_that_does_not_compile(judge: Judge, backend: str) -> None:
    verdict = judge.evaluate(sources.PROBLEM, sources.not_compiling(backend), backend=backend)
    assert (verdict.status, verdict.error_category) == (Status.COMPILE_ERROR, f"{backend}_compile"), verdict
    assert "no_such_function" in (verdict.error_message or "")
    assert not verdict.compiled


def test_the_library_with_a_decoy(judge: Judge, backend: str) -> None:
    verdict = judge.evaluate(sources.PROBLEM, sources.by_library(backend), backend=backend)
    assert (verdict.status, verdict.error_category) == (Status.REJECTED, "library_compute"), verdict


def test_hip_is_refused_before_anything_runs(judge: Judge) -> None:
    with pytest.raises(InputError, match="HIP kernels do not run on this machine's NVIDIA GPU"):
        judge.evaluate(sources.PROBLEM, sources.HIP, backend="hip")
