"""Real compilation for named targets, without a GPU: resources, refusals, the cache, and what an assembler says too."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import kernel_sources as sources
import pytest
from kernel_sources import ROW_KERNEL, ROW_PROBLEM

from kernels_eval import Judge, JudgeConfig, Status

TARGETS = ("cuda:80", "cuda:90", "cuda:100", "hip:gfx942")


@pytest.fixture(scope="module")
def compiling_judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=1, targets=TARGETS, timeout_s=5.0)) as judge:
        yield judge


def test_resources_for_every_target(compiling_judge: Judge) -> None:
    verdict = compiling_judge.evaluate(sources.LINEAR_PROBLEM, sources.LINEAR_KERNEL)
    assert verdict.status is Status.CORRECT, verdict
    assert [used.architecture for used in verdict.resources] == list(TARGETS)
    for used in verdict.resources:
        assert used.kernel == "kernel"
        assert used.registers is not None
        assert 8 <= used.registers <= 255
        assert used.shared_bytes
        assert used.spills == 0
    (cache,) = compiling_judge._scratch.glob("triton-*")
    assert any(cache.iterdir()), "each compiler has a cache of its own"


def test_what_only_the_compiler_refuses(compiling_judge: Judge) -> None:
    source = ROW_KERNEL.replace("BLOCK=512", "BLOCK=300")  # the interpreter takes a range that is no power of 2
    verdict = compiling_judge.evaluate(ROW_PROBLEM, source)
    assert (verdict.status, verdict.error_category) == (Status.COMPILE_ERROR, "triton_compile"), verdict
    assert not verdict.compiled
    assert not verdict.correct
    assert verdict.speedup is None
    assert verdict.error_message is not None
    assert "power of 2" in verdict.error_message
    assert "line " in verdict.error_message


def test_a_kernel_is_compiled_once(compiling_judge: Judge) -> None:
    compiling_judge.evaluate(ROW_PROBLEM, ROW_KERNEL)
    compilers = compiling_judge._compile_cache
    known = len(compilers._known)
    renamed = ROW_KERNEL.replace("M, N = x.shape", "M, N = x.size()")
    verdict = compiling_judge.evaluate(ROW_PROBLEM, renamed)
    assert len(verdict.resources) == len(TARGETS)
    assert len(compilers._known) == known


@pytest.mark.long
def test_a_share_of_the_correct_kernels_is_compiled_the_same_ones_again(compiling_judge: Judge) -> None:
    texts = [f"{ROW_KERNEL}# {index}" for index in range(16)]

    def compiled(share: float, trials: int) -> list[int]:
        settings = {"compile_share": share, "targets": ["cuda:90"], "trials": trials}  # trials: not from the cache
        jobs = [compiling_judge.submit(ROW_PROBLEM, text, None, settings) for text in texts]
        verdicts = [job.result() for job in jobs]
        assert {verdict.status for verdict in verdicts} == {Status.CORRECT}
        return [index for index, verdict in enumerate(verdicts) if verdict.resources]

    assert compiled(0.0, 2) == []
    half = compiled(0.5, 2)
    assert 0 < len(half) < len(texts)
    assert compiled(0.5, 3) == half
    assert set(half) < set(compiled(0.9, 2))
    assert compiled(1.0, 2) == list(range(len(texts)))


def test_a_killed_compiler_is_replaced(compiling_judge: Judge) -> None:
    compiling_judge._zygotes._known["compile"]._process.kill()
    verdict = compiling_judge.evaluate(ROW_PROBLEM, ROW_KERNEL.replace("ROWS=4", "ROWS=2").replace("(M, 4)", "(M, 2)"))
    assert verdict.status is Status.CORRECT
    assert len(verdict.resources) == len(TARGETS)


@pytest.mark.slow
def test_registers_and_spills_agree_with_cuobjdump(tmp_path: Path) -> None:
    script = """
import pathlib, subprocess, triton
from kernels_eval.compile import triton as compilation
from kernels_eval.sandbox.candidate_source import load_source
from kernels_eval.problem import EXAMPLE_KERNEL
from triton.compiler import ASTSource
tool = pathlib.Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
types = {"x_ptr": "*fp32", "out_ptr": "*fp32", "M": "i32", "N": "i32", "ROWS": "constexpr", "BLOCK": "constexpr"}
source = ASTSource(load_source(EXAMPLE_KERNEL).kernel, types, {"ROWS": 16, "BLOCK": 512})
for capability in (80, 90, 100):
    target = compilation.gpu_target(f"cuda:{capability}")
    cubin = triton.compile(source, target=target, options={"num_warps": 1}).asm["cubin"]
    pathlib.Path("kernel.cubin").write_bytes(cubin)
    listing = subprocess.run([tool, "--dump-resource-usage", "kernel.cubin"], capture_output=True, text=True).stdout
    registers, stack = (int(listing.split(name)[1].split()[0]) for name in ("REG:", "STACK:"))
    print(compilation.cubin_resources(cubin) == {"registers": registers, "spills": stack}, stack > 0)
"""
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root, "TRITON_CACHE_DIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    ran = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ran.stdout.splitlines() == ["True True"] * 3, ran.stderr[-2000:]
