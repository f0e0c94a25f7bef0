"""Languages by name; what is read from sources and from the assembler."""

from pathlib import Path

import pytest

import kernels_eval.backends
from kernels_eval.backends import backend_for, backend_named, backend_names
from kernels_eval.compile.extension import Extension
from kernels_eval.compile.nvcc import parse_resources
from kernels_eval.compile.one_shot import Compiled
from kernels_eval.errors import InputError
from kernels_eval.pool.worker_client import build_verdict
from kernels_eval.problem import literal_init_inputs
from kernels_eval.rewards import reward_of
from kernels_eval.verdict import Resources, Status


def test_names() -> None:
    assert backend_names() == ("cuda", "cute", "hip", "tilelang", "triton")
    with pytest.raises(
        InputError, match=r"expected one of auto, cuda, cute, hip, tilelang, triton, or .*, found 'tpu'"
    ):
        backend_named("tpu")


def test_a_further_back_end_is_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nothing.py").write_text(
        "from kernels_eval.backends import Backend\n"
        "class Nothing(Backend):\n"
        "    def own_kernels(self, source):\n"
        "        return frozenset({'nothing'})\n"
        "BACKEND = Nothing()\n"
    )
    monkeypatch.setattr(kernels_eval.backends, "__path__", [*kernels_eval.backends.__path__, str(tmp_path)])
    try:
        assert backend_names() == ("cuda", "cute", "hip", "nothing", "tilelang", "triton")
        nothing = backend_named("nothing")
        assert nothing.own_kernels("") == {"nothing"}
        assert nothing.unavailable("cuda", ()) is None
        assert "run on a GPU alone" in (nothing.unavailable("cpu", ()) or "")
    finally:
        backend_named.cache_clear()


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import triton\nimport triton.language as tl", "triton"),
        ("from torch.utils.cpp_extension import load_inline", "cuda"),
        ("import torch\n    import torch.utils.cpp_extension as extension", "cuda"),
        ("from tilelang import jit\nimport tilelang.language as T", "tilelang"),
        ("import cutlass.cute as cute", "cute"),
        ("import tilelang_of_mine", "triton"),
        ("# from torch.utils.cpp_extension import load_inline", "triton"),
        ("", "triton"),
    ],
)
def test_a_source_s_imports_name_its_back_end(source: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in ("tilelang", "cute"):
        monkeypatch.setattr(type(backend_named(other)), "unavailable", lambda *_: None)
    assert backend_for(source, "cuda", ()) == name


def test_a_back_end_that_this_machine_lacks_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(backend_named("tilelang")), "unavailable", lambda *_: "not installed")
    assert backend_for("import tilelang", "cuda", ()) == "triton"


def test_own_kernels_of_cuda() -> None:
    source = """
    __global__ void plain(const float* x) {}
    template <typename T> __global__ void __launch_bounds__(256) bounded(T* x) {}
    static __global__ void
    split(int n) {}
    extern "C" __global__ __launch_bounds__(128, 2) void early(int n) {}
    __device__ float helper(float x) { return x; }
    """
    assert backend_named("cuda").own_kernels(source) == {"plain", "bounded", "split", "early"}


def test_own_kernels_of_triton() -> None:
    assert backend_named("triton").own_kernels("@triton.jit\ndef k(x): pass\nexec('def made(y): pass')") == {
        "k",
        "made",
    }


LOG = """
ptxas info    : 28 bytes gmem
ptxas info    : Compiling entry function '_Z11relu_kernelPKfPfl' for 'sm_90'
ptxas info    : Function properties for _Z11relu_kernelPKfPfl
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Compiling entry function '_ZN4mine5tiledIfEEvPT_' for 'sm_90a'
ptxas info    : Function properties for _ZN4mine5tiledIfEEvPT_
    48 bytes stack frame, 44 bytes spill stores, 60 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16384 bytes smem, 400 bytes cmem[0]
"""


def test_what_the_assembler_says() -> None:
    assert parse_resources(LOG) == [
        {"kernel": "relu_kernel", "architecture": "cuda:90", "spills": 0, "registers": 10, "shared_bytes": 0},
        {"kernel": "tiled", "architecture": "cuda:90", "spills": 44, "registers": 255, "shared_bytes": 16384},
    ]


def test_an_extension_is_named_by_content() -> None:
    first = Extension.of("a b", "int f();", ["x", "y"], ["f"], extra_cuda_cflags=["-O3"], verbose=True)
    again = Extension.of(
        name="a b", cpp_sources=["int f();"], cuda_sources=["x", "y"], functions=["f"], extra_cuda_cflags=["-O3"]
    )
    assert first == again
    assert first.digest == again.digest
    assert first.name == "a_b"
    assert Extension.of("a b", "int f();", ["x", "z"], ["f"]).digest != first.digest


def test_constructor_arguments_are_read_and_not_run() -> None:
    problem = "M, K = 4, 8\nscale = 0.5\ndef get_init_inputs():\n    return [K, scale, 'x', (1, 2)]\n"
    assert literal_init_inputs(problem) == [8, 0.5, "x", (1, 2)]
    assert literal_init_inputs("def get_init_inputs():\n    return [open('/etc/passwd')]\n") == []


def test_host_code_that_got_to_no_kernel_is_not_said_to_compile() -> None:
    stopped = build_verdict(Compiled(category="not_run_without_gpu", message="no kernel was compiled: m"), runs=False)
    assert stopped is not None
    assert (stopped.status, stopped.error_category) == (Status.RUNTIME_ERROR, "not_run_without_gpu")
    assert (stopped.compiled, stopped.error_message) == (False, "no kernel was compiled: m")
    partly = Compiled((Resources(kernel="k", architecture="cuda:90"),), message="KeyError: 'x' (line 3: d['x'])")
    verdict = build_verdict(partly, runs=False, compiler="cutlass")
    assert verdict is not None
    assert (verdict.compiled, verdict.hardware) == (True, "cutlass")
    assert (verdict.error_message or "").endswith("the host code was followed up to KeyError: 'x' (line 3: d['x'])")


def test_built_but_not_run() -> None:
    built = Compiled((Resources(kernel="k", architecture="cuda:90", registers=10),))
    assert build_verdict(built, runs=True) is None
    verdict = build_verdict(built, runs=False)
    assert verdict is not None
    assert (verdict.status, verdict.error_category) == (Status.RUNTIME_ERROR, "not_run_without_gpu")
    assert verdict.compiled
    assert not verdict.correct
    assert reward_of("kernelbench", verdict) == 0.1
    failed = build_verdict(Compiled(category="nvcc_compile", message="m"), runs=True)
    assert failed is not None
    assert failed.status is Status.COMPILE_ERROR
