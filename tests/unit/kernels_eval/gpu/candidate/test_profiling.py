"""Attribution of profiled kernels, by names as CUPTI writes them."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernels_eval.gpu.candidate.profiling import (
    KernelRecord,
    attribution_of,
    is_own,
    kernel_times,
    least_ns,
    suspicious_names,
)

OWN = {"row_softmax", "fused_kernel", "gemm_kernel", "copy_kernel"}


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("row_softmax", True),
        ("gemm_kernel", True),
        ("copy_kernel", True),
        ("fused_kernel(float const*, float*, long)", True),
        ("void fused_kernel<at::Half>(at::Half const*, at::Half*, long)", True),
        ("(anonymous namespace)::fused_kernel(float*)", True),
        ("void mine::fused_kernel<float, 4>(float*)", True),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)", False),
        ("at::native::copy_kernel(float*)", False),
        ("void cub::fused_kernel<float>(float*)", False),
        ("ampere_sgemm_128x64_nn", False),
        ("sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_cublas", False),
        ("row_softmax_2", False),
    ],
)
def test_ownership(name: str, own: bool) -> None:
    assert is_own(name, OWN) == own


def test_a_name_that_passes_for_a_librarys() -> None:
    assert suspicious_names(OWN) == []
    assert suspicious_names({"ampere_sgemm_128x64_nn", "kernel"}) == ["ampere_sgemm_128x64_nn"]
    assert not is_own("ampere_sgemm_128x64_nn", {"ampere_sgemm_128x64_nn"})


@pytest.mark.parametrize(
    ("name", "own"),
    [
        ("kernel_cutlass_add_tensorptrf32generico10485761_0", True),
        ("kernel_cutlass_Gemm_cutlasscutetypingFloat32_tensorptrf32_0", True),
        ("kernel_cutlass_other_tensorptrf32_0", False),
        ("void cutlass::kernel_cutlass_add_0(float*)", False),
        ("rows_kernel", True),
        ("rows_kernel_1", True),
        ("rows_kernels", False),
        ("kernel_cutlass_cublas_add_0", False),
    ],
)
def test_names_that_begin_as_own_ones(name: str, own: bool) -> None:
    begins = {"kernel_cutlass_add_*", "kernel_cutlass_Gemm_*", "kernel_cutlass_cublas_add_*", "rows_kernel"}
    assert is_own(name, begins | {"rows_kernel_*"}) == own


def test_the_mark_of_cute_dsl_is_no_disguise() -> None:
    assert suspicious_names({"kernel_cutlass_add_*"}) == []
    assert suspicious_names({"kernel_cutlass_cublas_add_*"}) == ["cublas_add_"]


def record(name: str, duration: int, stream: int = 0, start: int = 0) -> KernelRecord:
    return KernelRecord(name=name, duration_ns=duration, stream=stream, start_ns=start)


def test_shares() -> None:
    fill = (
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>, std::array<char*, 1ul>>(int)"
    )
    found = attribution_of(
        [
            record("row_softmax", 30),
            record("sm80_xmma_gemm", 70),
            record("Memcpy DtoD (Device -> Device)", 500, 9),
            record("Memset (Device)", 500),
            record(fill, 500),
            record("kernels_eval_gate", 500),
            record("void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out()>", 90),
            record("void at::native::vectorized_elementwise_kernel<8, at::native::float16_copy_kernel_cuda()>()", 500),
        ],
        OWN,
    )
    assert found.own_share == pytest.approx(0.3)
    assert found.library_names == ("sm80_xmma_gemm",)
    assert found.computing_ns == 100
    assert not found.uses_side_streams


def test_a_kernel_called_like_a_copy_is_a_library_s() -> None:
    """The driver's own activities have a space in their names, which no kernel's name can have."""
    found = attribution_of([record("Memcpy", 1), record("Memset_of_mine", 2), record("Memset(float*)", 4)], OWN)
    assert found.library_ns == 7
    assert found.counts == {"Memcpy": 1, "Memset_of_mine": 1, "Memset(float*)": 1}


def test_side_streams_and_nothing_at_all() -> None:
    assert attribution_of([record("row_softmax", 1, 14)], OWN).uses_side_streams
    assert attribution_of([], OWN).own_share == 0.0


GATE = record("kernels_eval_gate", 400_000, start=100_000)
SIDE = record("row_softmax", 9_000, 14, 501_000)


@pytest.mark.parametrize(
    ("found", "early_ns"),
    [
        ([GATE, record("row_softmax", 9_000, start=500_500), SIDE], 0),
        ([GATE, record("row_softmax", 409_000, start=100_500)], 0),  # launched to start early: it has to wait
        ([GATE, record("row_softmax", 8_000, 14, 50_000), SIDE], 8_000),
        ([record("Memset (Device)", 7_000, 14, 150_000), GATE, SIDE], 7_000),
        ([GATE, record("row_softmax", 900_000, 14, 450_000)], 900_000),  # goes on while the calls are timed
        ([GATE, *(record("row_softmax", each, 14) for each in (8_000, 9_000, 2_000_000))], 27_000),  # one interrupted
        ([record("row_softmax", 9_000, 14, 50_000)], 0),  # in a round without a gate
        ([GATE.model_copy(update={"stream": 8}), SIDE], 0),  # the default stream's number is not known
    ],
)
def test_what_does_not_wait_for_the_gate_is_early(found: list[KernelRecord], early_ns: float) -> None:
    assert attribution_of(found, OWN).early_ns == early_ns


PROFILED = """
import torch
from torch.profiler import ProfilerActivity, profile
from kernels_eval.gpu.candidate.profiling import Profiler

def seen():
    return (
        torch.autograd._profiler_enabled(),
        torch._C._autograd._profiler_enabled(),
        torch._C._autograd._profiler_type().name,
        torch.autograd.profiler._is_profiler_enabled,
    )

unprofiled = seen()
with profile(activities=[ProfilerActivity.CPU]):
    assert seen() != unprofiled
Profiler(lambda: None)
with profile(activities=[ProfilerActivity.CPU]):
    assert seen() == unprofiled
"""


def test_a_candidate_that_asks_for_the_profiler_learns_nothing() -> None:
    subprocess.run([sys.executable, "-c", PROFILED], check=True)


WARMED = """
import contextlib, sys
from types import SimpleNamespace
import torch
from kernels_eval.gpu.candidate.profiling import Profiler

torch.cuda.synchronize = lambda: None
empty, fills = int(sys.argv[1]), []
cuda = torch.autograd.DeviceType.CUDA
fill = SimpleNamespace(
    device_type=lambda: cuda, name=lambda: "fill", start_ns=lambda: 5, duration_ns=lambda: 1, device_resource_id=lambda: 7
)

@contextlib.contextmanager
def profile(activities):
    yield SimpleNamespace(
        profiler=SimpleNamespace(kineto_results=SimpleNamespace(events=lambda: [fill] if len(fills) > empty else []))
    )

profiler = Profiler(lambda: fills.append(1))
profiler._profile = profile
profiler.warm_up()
print(len(fills), profiler._default_stream)
"""


@pytest.mark.parametrize(("empty", "told"), [(0, "1 7"), (2, "3 7"), (3, "RuntimeError: CUPTI recorded nothing of 3")])
def test_a_profiler_that_records_nothing_is_tried_again_before_a_candidate_runs(empty: int, told: str) -> None:
    done = subprocess.run([sys.executable, "-c", WARMED, str(empty)], capture_output=True, text=True)
    assert told in (done.stdout or done.stderr)


NAMES = ["row_softmax", "sm80_xmma_gemm", "Memcpy DtoD (Device -> Device)", "void at::native::sum(float*)"]
records = st.lists(st.builds(record, st.sampled_from(NAMES), st.integers(0, 10**6), st.integers(0, 2)), max_size=20)


@given(records)
def test_every_nanosecond_is_attributed_once(found: list[KernelRecord]) -> None:
    attribution = attribution_of(found, OWN)
    assert attribution.computing_ns == sum(one.duration_ns for one in found if one.name != NAMES[2])
    assert attribution.own_ns == sum(one.duration_ns for one in found if one.name == "row_softmax")
    assert set(attribution.library_names) == {one.name for one in found} & {NAMES[1], NAMES[3]}
    assert attribution.uses_side_streams == any(one.stream and one.name != NAMES[2] for one in found)


def test_times_of_one_call_the_longest_first() -> None:
    records = [record("row_softmax", 1000), record("sm80_xmma_gemm", 5000), record("row_softmax", 3000)]
    records += [record("Memcpy DtoD (Device -> Device)", 9000), record("gemm_kernel", 500)]
    found = kernel_times(records, 2, OWN)
    assert [(kernel.name, kernel.launches, kernel.microseconds, kernel.is_own) for kernel in found] == [
        ("sm80_xmma_gemm", 0.5, 2.5, False),
        ("row_softmax", 1.0, 2.0, True),
        ("gemm_kernel", 0.5, 0.25, True),
    ]


def test_a_call_takes_as_long_as_its_kernels_in_their_quickest_call() -> None:
    found = [record("row_softmax", duration) for duration in (30, 10, 50, 10)]  # two calls of two launches
    found += [record("row_sum", 7), record("row_sum", 5), record("Memcpy DtoD (Device -> Device)", 900)]
    assert least_ns(found, 2, {"row_softmax", "row_sum"}) == 40 + 5
    assert least_ns([*found, record("every_third_call", 9)], 2, {"row_softmax"}) == 40 + 5 + 4.5


@given(records, st.integers(1, 4))
def test_the_quickest_call_takes_no_longer_than_the_mean(found: list[KernelRecord], calls: int) -> None:
    assert least_ns(found, calls, OWN) <= attribution_of(found, OWN).computing_ns / calls + 1e-6
