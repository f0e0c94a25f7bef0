"""Honest kernels pass, wrong ones fail with a message that helps, hostile ones end as data."""

import asyncio
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import kernel_sources as sources
import pytest
from kernel_sources import LAUNCH, ROW_KERNEL, ROW_PROBLEM, with_forward

from kernels_eval import Judge, JudgeConfig, Problem, Status, Verdict
from kernels_eval.errors import InputError
from kernels_eval.pool.worker_client import WorkerClient

_HALF = "took more than {} s of CPU time, where no kernel is run"
HONEST = {
    "row tile": (ROW_PROBLEM, ROW_KERNEL),
    "linear with epilogue": (sources.LINEAR_PROBLEM, sources.LINEAR_KERNEL),
    "transposed and reduced": (sources.TRANSPOSED_PROBLEM, sources.TRANSPOSED_KERNEL),
    "two launches over scratch": (
        ROW_PROBLEM,
        with_forward(
            LAUNCH.replace("out =", "mid =").replace("x, out", "x, mid")
            + "        out = torch.empty_like(x)\n        copy[(triton.cdiv(M * N, 1024),)](mid, out, M * N, BLOCK=1024)\n        return out\n",
            "@triton.jit\ndef copy(x_ptr, out_ptr, count, BLOCK: tl.constexpr):\n"
            "    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
            "    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < count), mask=at < count)\n",
        ),
    ),
    "autotuned": (
        ROW_PROBLEM,
        ROW_KERNEL.replace(
            "@triton.jit",
            "@triton.autotune([triton.Config({'ROWS': 4}, num_warps=2), triton.Config({'ROWS': 8})], key=['N'])\n@triton.jit",
        )
        .replace("(triton.cdiv(M, 4),)", "lambda meta: (triton.cdiv(M, meta['ROWS']),)")
        .replace(" ROWS=4,", ""),
    ),
    "contiguous and view around the launch": (
        ROW_PROBLEM,
        with_forward(
            "        x = x.contiguous().view(M, N)\n" + LAUNCH + "        return out.view(M, N).contiguous()\n"
        ),
    ),
    "persistent: a fixed grid that strides over the rows": (
        ROW_PROBLEM.replace("4096", "1024"),
        ROW_KERNEL.replace("ROWS: tl.constexpr,", "ROWS: tl.constexpr, GRID: tl.constexpr,")
        .replace(
            "    rows = tl.program_id(0) * ROWS",
            "    for start in range(tl.program_id(0) * ROWS, M, GRID * ROWS):\n     rows = start",
        )
        .replace("\n    cols", "\n     cols")
        .replace("\n    mask", "\n     mask")
        .replace("\n    x =", "\n     x =")
        .replace("\n    tl.store", "\n     tl.store")
        .replace("(triton.cdiv(M, 4),)", "(8,)")
        .replace("ROWS=4", "ROWS=4, GRID=8"),
    ),
    "tile taller than the first hidden size, unmasked": (
        ROW_PROBLEM,
        ROW_KERNEL.replace("(rows < M) & (cols < N)", "(rows >= 0) & (cols < N)")
        .replace("triton.cdiv(M, 4)", "M // 64")
        .replace("ROWS=4", "ROWS=64"),
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_kernels_are_correct(judge: Judge, name: str) -> None:
    verdict = judge.evaluate(*HONEST[name])
    assert verdict.status is Status.CORRECT, verdict
    assert verdict.correct
    assert verdict.compiled
    assert verdict.speedup
    assert verdict.speedup > 0.2
    assert verdict.max_rel_error is not None
    assert verdict.max_rel_error < 1e-4
    assert len(verdict.seed_commitment) == 64
    assert "rlimits" in verdict.sandbox


def wrong(body: str, extra: str = "") -> str:
    return with_forward(body, extra)


FAILING: dict[str, tuple[str, Status, str]] = {
    "syntax": ("def f(:\n", Status.COMPILE_ERROR, "syntax_error"),
    "no model": ("import torch\n", Status.COMPILE_ERROR, "missing_model"),
    "import": ("import nothing_like_this\n", Status.COMPILE_ERROR, "import_error"),
    "undefined name in the kernel": (ROW_KERNEL.replace("tl.maximum(x, 0.0)", "tl.maximum(z, 0.0)"), Status.COMPILE_ERROR, "triton_compile"),
    "shapes that do not broadcast": (ROW_KERNEL.replace("tl.max(x, axis=1)[:, None]", "tl.arange(0, 8)"), Status.COMPILE_ERROR, "triton_compile"),
    "wrong constant": (ROW_KERNEL.replace("x * 2.0", "x * 2.1"), Status.INCORRECT, "wrong_values"),
    "no relu": (ROW_KERNEL.replace("tl.maximum(x, 0.0)", "x"), Status.INCORRECT, "wrong_values"),
    "padding in the maximum": (ROW_KERNEL.replace("-float(\"inf\")", "0.0"), Status.INCORRECT, "wrong_values"),
    "part of the grid": (ROW_KERNEL.replace("triton.cdiv(M, 4)", "triton.cdiv(M, 8)"), Status.INCORRECT, "wrong_values"),
    "hard-coded rows": (ROW_KERNEL.replace("triton.cdiv(M, 4)", "8"), Status.INCORRECT, "wrong_values"),
    "hard-coded rows, as many as a hidden size has": (ROW_KERNEL.replace("triton.cdiv(M, 4)", "16"), Status.INCORRECT, "wrong_values"),
    "hard-coded rows, half of them": (ROW_KERNEL.replace("triton.cdiv(M, 4)", "512"), Status.INCORRECT, "wrong_values"),
    "a grid that stops growing": (ROW_KERNEL.replace("triton.cdiv(M, 4)", "min(triton.cdiv(M, 4), 64)"), Status.INCORRECT, "wrong_values"),
    "zeros": (ROW_KERNEL.replace("tl.store(out_ptr + rows * N + cols, x,", "tl.store(out_ptr + rows * N + cols, x * 0,"), Status.INCORRECT, "wrong_values"),
    "transposed shape": (with_forward(LAUNCH + "        return out.t()\n"), Status.INCORRECT, "wrong_shape"),
    "half precision": (with_forward(LAUNCH + "        return out.to(torch.float16)\n"), Status.INCORRECT, "wrong_dtype"),
    "no tensor": (with_forward(LAUNCH + "        return 1.0\n"), Status.INCORRECT, "wrong_type"),
    "two outputs": (with_forward(LAUNCH + "        return out, out\n"), Status.INCORRECT, "wrong_output_count"),
    "exception": (with_forward("        raise ValueError('boo')\n"), Status.RUNTIME_ERROR, "exception"),
    "a signal": (with_forward("        import faulthandler\n        faulthandler._sigsegv()\n"), Status.RUNTIME_ERROR, "crashed"),
    "early exit": (with_forward("        import os\n        os._exit(0)\n"), Status.RUNTIME_ERROR, "no_answer"),
    "memory": (with_forward("        scratch = torch.empty(1 << 34)\n" + LAUNCH + "        return out\n"), Status.RUNTIME_ERROR, "out_of_memory"),
    "store past the end": (ROW_KERNEL.replace("mask=mask)\n\n", "mask=(rows < M + 1) & (cols < N))\n\n").replace("triton.cdiv(M, 4)", "triton.cdiv(M, 4) + 1"), Status.RUNTIME_ERROR, "out_of_bounds"),
    "load past the end": (ROW_KERNEL.replace("x_ptr + rows * N", "x_ptr + 4 + rows * N"), Status.RUNTIME_ERROR, "out_of_bounds"),
    "reference itself": (with_forward("        return torch.softmax(torch.relu(x) * 2.0 + 1.0, dim=1)\n"), Status.REJECTED, "library_compute"),
    "caught violation": (with_forward(LAUNCH + "        try:\n            return torch.softmax(x, 1)\n        except Exception:\n            return out\n"), Status.REJECTED, "library_compute"),
    "on the host": (with_forward("        import numpy\n        return torch.from_numpy(numpy.exp(x.numpy()))\n"), Status.REJECTED, "library_compute"),
    "no launch": (with_forward("        return x\n"), Status.REJECTED, "no_kernel_launched"),
    "scribbles on its input": (with_forward(LAUNCH + "        x.zero_()\n        return out\n"), Status.REJECTED, "changed_input"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILING)
def test_failures_say_what_is_wrong(judge: Judge, name: str) -> None:
    source, status, category = FAILING[name]
    verdict = judge.evaluate(ROW_PROBLEM, source)
    assert (verdict.status, verdict.error_category) == (status, category), verdict
    assert not verdict.correct
    assert verdict.speedup is None
    assert verdict.error_message
    assert (verdict.rejection_reason is not None) == (status is Status.REJECTED)
    assert verdict.compiled == (status is not Status.COMPILE_ERROR)


def test_messages_point_at_the_candidate(judge: Judge) -> None:
    undefined = judge.evaluate(ROW_PROBLEM, FAILING["undefined name in the kernel"][0])
    assert undefined.error_message == ("kernel: NameError: name 'z' is not defined (line 13: x = tl.maximum(z, 0.0))")
    wrong_values = judge.evaluate(ROW_PROBLEM, FAILING["part of the grid"][0])
    assert wrong_values.error_message is not None
    # Half of the rows, at whatever size it was judged: host code that divides may be judged where tiles divide.
    # What nobody has written is NaN, very large or very small.
    first = re.search(r"output\[(\d+), 0\] is (?:nan|-?1\.70141e\+38), expected", wrong_values.error_message)
    assert first is not None
    assert int(first[1]) > 0
    assert "50.0% of " in wrong_values.error_message
    past = judge.evaluate(ROW_PROBLEM, FAILING["store past the end"][0])
    assert past.error_message is not None
    assert "the kernel writes outside its tensors: at the end of the " in past.error_message
    assert "`out_ptr`" in past.error_message


def test_a_hanging_kernel_is_ended_in_time(judge: Judge) -> None:
    judge.evaluate(ROW_PROBLEM, ROW_KERNEL)
    for body in (LAUNCH + "        while True:\n            pass\n", "        import time\n        time.sleep(60)\n"):
        started = time.monotonic()
        verdict = judge.submit(ROW_PROBLEM, with_forward(body), settings={"timeout_s": 1.0}).result()
        assert verdict.status is Status.TIMEOUT
        assert time.monotonic() - started < 30, "it was not slept out"
    assert judge.evaluate(ROW_PROBLEM, ROW_KERNEL + "# again").status is Status.CORRECT


def test_a_parameter_of_ones_must_be_used(judge: Judge) -> None:
    line = "    acc = acc * tl.load(s_ptr + cols, mask=cols < N, other=0.0)\n"
    verdict = judge.evaluate(sources.LINEAR_PROBLEM, sources.LINEAR_KERNEL.replace(line, ""))
    assert verdict.status is Status.INCORRECT


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision(judge: Judge, dtype: str) -> None:
    problem = ROW_PROBLEM.replace("torch.rand(M, N)", f"torch.rand(M, N, dtype=torch.{dtype})")
    source = ROW_KERNEL.replace("other=0.0)", "other=0.0).to(tl.float32)")
    assert judge.evaluate(problem, source).status is Status.CORRECT
    assert judge.evaluate(problem, source.replace("* 2.0", "* 2.2")).status is Status.INCORRECT


def test_mixed_policy_allows_library_calls_beside_own_kernels(judge: Judge) -> None:
    def mixed(kernel: str) -> Verdict:
        return judge.submit(ROW_PROBLEM, kernel, settings={"policy": "mixed"}).result()

    beside = with_forward(LAUNCH.replace("x, out", "x + 0.0, out") + "        return out\n")
    instead = with_forward(LAUNCH + "        for _ in range(9):\n            out = torch.softmax(torch.relu(x) * 2 + 1, 1)\n        return out\n")  # fmt: skip
    verdict = mixed(beside)
    assert verdict.status is Status.CORRECT
    assert verdict.speedup is not None
    assert mixed(ROW_KERNEL).speedup > verdict.speedup  # pyright: ignore[reportOptionalOperand]
    assert mixed(instead).rejection_reason == "decoy_kernel"
    assert judge.evaluate(ROW_PROBLEM, beside).rejection_reason == "library_compute", "strict is the default"


def test_fused_is_faster_than_a_kernel_per_step(judge: Judge) -> None:
    fused = judge.evaluate(ROW_PROBLEM, ROW_KERNEL).speedup
    unfused = judge.evaluate(*HONEST["two launches over scratch"]).speedup
    assert fused is not None
    assert unfused is not None
    assert fused > 1.3 * unfused


def test_tall_tiles_are_estimated_by_their_true_grid(judge: Judge) -> None:
    """4096 rows are 4096 / 128 programs, though one program does for every size that is interpreted."""
    times: list[float] = []
    for rows in (4, 128):
        source = ROW_KERNEL.replace("(M, 4)", f"(M, {rows})").replace("ROWS=4", f"ROWS={rows}")
        verdict = judge.evaluate(ROW_PROBLEM, source)
        assert verdict.candidate_ms is not None
        times.append(verdict.candidate_ms)
    assert (
        1.0 < times[1] / times[0] < 4.5
    )  # 32 programs on 132 processors: slower, but not by the factor of one program


def test_a_repeated_kernel_is_not_judged_again(judge: Judge) -> None:
    first = judge.evaluate(ROW_PROBLEM, ROW_KERNEL + "# once")
    assert judge.evaluate(ROW_PROBLEM, ROW_KERNEL + "# once") is first
    assert judge.evaluate(ROW_PROBLEM, ROW_KERNEL + "# twice").seed_commitment != first.seed_commitment


@pytest.mark.long
def test_a_public_message_is_the_same_wherever_the_kernel_is_judged() -> None:
    """Element and values in it do not come from the secret seeds of the checks, which differ from verdict to verdict."""
    names = ("no relu", "part of the grid", "store past the end", "scribbles on its input", "zeros")
    kernels = [(ROW_PROBLEM, FAILING[name][0]) for name in names]

    def judged(public: bool) -> list[Verdict]:
        with Judge(JudgeConfig(workers=1, compile="never", public_messages=public)) as judge:
            return judge.evaluate_many(kernels)

    once, again, secret = judged(True), judged(True), judged(False)
    for name, one, other in zip(names, once, again, strict=True):
        assert (one.status, one.error_category) == FAILING[name][1:]
        assert one.error_message == other.error_message
        assert one.seed_commitment != other.seed_commitment
    assert "is" in (once[0].error_message or "")
    assert once[0].error_message != secret[0].error_message


_TWO_FAULTS = ROW_KERNEL.replace(
    "    tl.store(out_ptr + rows * N + cols, x, mask=mask)",
    "    number = tl.program_id(0)\n"
    "    tl.store(out_ptr + tl.where(number == 0, 100000000, 0), number)\n"
    "    tl.store(out_ptr + 1, number)",
)
"""Its first program writes outside, the others write one element: which fault comes first depends on their order."""


@pytest.mark.long
def test_of_two_faults_the_same_one_is_named_each_time() -> None:
    def named() -> tuple[str | None, str | None]:
        with Judge(JudgeConfig(workers=1, compile="never")) as judge:
            verdict = judge.evaluate(ROW_PROBLEM, _TWO_FAULTS)
        return verdict.error_category, verdict.error_message

    first = named()
    assert first[0] in ("out_of_bounds", "data_race")
    assert {named() for _ in range(2)} == {first}


@pytest.mark.long
def test_the_cache_on_disk_outlives_the_judge(tmp_path: Path) -> None:
    config = JudgeConfig(workers=1, compile="never", cache_dir=str(tmp_path))
    with Judge(config) as judge:
        first = judge.evaluate(ROW_PROBLEM, ROW_KERNEL)
    with Judge(config) as judge:
        assert judge.evaluate(ROW_PROBLEM, ROW_KERNEL) == first
        assert not judge._zygotes._known, "no process was started for it"


def test_order_and_concurrency(judge: Judge) -> None:
    items = [
        (Problem(problem_id=str(index), source=ROW_PROBLEM), ROW_KERNEL.replace("x * 2.0", f"x * {2.0 if index % 2 else 3.0}") + f"# {index}")
        for index in range(8)
    ]  # fmt: skip
    seen: list[tuple[int, int]] = []
    verdicts = judge.evaluate_many(items, progress=lambda done, total: seen.append((done, total)))
    assert [verdict.correct for verdict in verdicts] == [False, True] * 4
    assert sorted(seen) == [(done, 8) for done in range(1, 9)]

    async def all_at_once() -> list[bool]:
        calls = [judge.evaluate_async(problem, source + "#") for problem, source in items]
        return [verdict.correct for verdict in await asyncio.gather(*calls)]

    assert asyncio.run(all_at_once()) == [False, True] * 4


def test_a_broken_problem_is_not_the_kernels_fault(judge: Judge) -> None:
    raising = ROW_PROBLEM.replace("x = torch.relu(x)", "raise RuntimeError('mine')")
    verdict = judge.evaluate(raising, ROW_KERNEL)
    assert verdict.status is Status.INFRASTRUCTURE_ERROR
    assert verdict.error_category == "reference_failed"
    with pytest.raises(InputError, match="get_inputs"):
        judge.evaluate("class Model: pass", ROW_KERNEL)
    with pytest.raises(InputError, match="backend"):
        judge.evaluate(ROW_PROBLEM, ROW_KERNEL, backend="tpu")


@pytest.mark.long
def test_a_problem_that_ends_its_process_takes_no_worker_out_of_service(judge: Judge) -> None:
    exits = ROW_PROBLEM.replace("x = torch.relu(x)", "import os; os._exit(0)")
    verdict = judge.evaluate(exits, ROW_KERNEL)
    assert (verdict.status, verdict.error_category) == (Status.INFRASTRUCTURE_ERROR, "reference_failed")
    assert "the problem ends its process" in (verdict.error_message or "")
    assert judge.statuses.fault_statistics().quarantined == ()
    assert judge.statuses.fault_statistics().by_category == {"reference_failed": 4}
    assert judge.evaluate(ROW_PROBLEM, ROW_KERNEL + "# after it").correct


@pytest.mark.long
def test_killed_processes_lose_nothing_and_closing_leaves_nothing() -> None:
    with Judge(JudgeConfig(workers=2, compile="never", timeout_s=30.0)) as judge:  # also of the probes of new workers
        judge.evaluate_many([(ROW_PROBLEM, ROW_KERNEL + f"# {index}") for index in range(2)])
        for process in _children_of_template(judge):
            os.kill(process, signal.SIGKILL)
        verdicts = judge.evaluate_many([(ROW_PROBLEM, ROW_KERNEL + f"# {index}") for index in range(10, 16)])
        assert [verdict.status for verdict in verdicts] == [Status.CORRECT] * 6
        sleeping = with_forward("        import time\n        time.sleep(60)\n")
        asleep = [judge.submit(ROW_PROBLEM, f"{sleeping}# {n}", settings={"timeout_s": 1.0}) for n in range(4)]
        assert {future.result().status for future in asleep} == {Status.TIMEOUT}
        workers = _children_of_template(judge)
        assert len(workers) == 4, "those in reserve too"
        judge._zygotes._known["interpret"]._process.kill()  # and with it all of them, on a busy machine a little later
        gone_by = time.monotonic() + 20
        while any(_is_running(process) for process in workers) and time.monotonic() < gone_by:
            time.sleep(0.05)
        verdict = judge.evaluate(ROW_PROBLEM, ROW_KERNEL + "#")
        assert verdict.status is Status.CORRECT, verdict.error_message
        zygote, deadline = judge._zygotes._known["interpret"]._process.pid, time.monotonic() + 20
        while len(family := _family(zygote)) < 6:
            assert time.monotonic() < deadline, "zygote, worker, two fork servers, and a spare child of each"
            time.sleep(0.05)
        scratch = judge._scratch
    assert not [process for process in family if _is_running(process)]
    assert not scratch.exists()


@pytest.mark.long
def test_host_code_that_spins_has_half_of_the_time() -> None:
    spinning = with_forward("        while True:\n            pass\n")
    unlimited = "        import signal\n        signal.setitimer(signal.ITIMER_PROF, 0)\n"
    told = {
        spinning: "took more than {} s of CPU time between two operators of host code",
        with_forward(unlimited + "        while True:\n            pass\n"): _HALF,
        with_forward("        while True:\n            x = x.view(M, N)\n"): _HALF,
        "while True:\n    pass\n" + spinning: _HALF,
    }
    with Judge(JudgeConfig(workers=1, compile="never", timeout_s=2.0)) as judge:
        verdicts = judge.evaluate_many([(ROW_PROBLEM, kernel) for kernel in told])
    assert [verdict.status for verdict in verdicts] == [Status.TIMEOUT] * len(told)
    messages = [verdict.error_message or "" for verdict in verdicts]
    assert [re.sub(r"[\d.]+", "{}", message) for message in messages] == list(told.values())
    limits = [float(match[0]) for message in messages if (match := re.search(r"[\d.]+", message))]
    for limit, least in zip(limits, (0.3, 1.0, 1.0, 1.0), strict=True):
        assert least <= limit < 4 * least, "longer on a slow machine (JudgeConfig.timeout_s)"


def test_host_code_may_compute_in_a_step(judge: Judge) -> None:
    table = (
        "        if not hasattr(self, 'table'):\n            import time\n            end = time.process_time() + 0.2\n"
    )
    table += "            while time.process_time() < end:\n                pass\n            self.table = 1\n"
    kernel = with_forward(table + LAUNCH + "        return out\n")
    verdict = judge.submit(ROW_PROBLEM, kernel, settings={"timeout_s": 2.0}).result()
    assert verdict.status is Status.CORRECT, verdict


@pytest.mark.long
def test_without_the_sandbox_that_is_required_it_does_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other judges have folders in the usual place
    monkeypatch.setattr("kernels_eval.judge.REQUIRED_SANDBOX", ("process", "a moat"))
    config = JudgeConfig(workers=1, compile="never", require_sandbox=True)
    with pytest.raises(InputError, match="this machine lacks a moat; it has process, rlimits"):
        Judge(config)
    assert not list(tmp_path.glob("kernels-eval-*"))
    monkeypatch.setattr("kernels_eval.judge.REQUIRED_SANDBOX", ("process",))
    with Judge(config) as judge:
        assert judge.evaluate(ROW_PROBLEM, "def f(:").status is Status.COMPILE_ERROR


@pytest.mark.long
def test_a_killed_driver_leaves_nothing_behind() -> None:
    script = (
        "import os, sys; sys.path.insert(0, sys.argv[1])\n"
        "from kernels_eval import Judge, JudgeConfig; import kernel_sources as s\n"
        "judge = Judge(JudgeConfig(workers=1, compile='never')); judge.evaluate(s.ROW_PROBLEM, s.ROW_KERNEL)\n"
        "print(judge._scratch, judge._zygotes._known['interpret']._process.pid, flush=True); os.kill(os.getpid(), 9)\n"
    )
    here = str(Path(__file__).parent)
    ran = subprocess.run(
        [sys.executable, "-c", script, here], capture_output=True, text=True, cwd=Path(here).parents[2]
    )
    scratch, process = ran.stdout.split()
    deadline = time.monotonic() + 10
    while (_is_running(int(process)) or Path(scratch).exists()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_running(int(process))
    assert not Path(scratch).exists()


def _children_of_template(judge: Judge) -> list[int]:
    from kernels_eval.sandbox.limits import children_of

    return children_of(judge._zygotes._known["interpret"]._process.pid)


def _family(process: int) -> list[int]:
    from kernels_eval.sandbox.limits import children_of

    return [process, *(member for child in children_of(process) for member in _family(child))]


def _is_running(process: int) -> bool:
    try:
        return ") Z" not in Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.long
def test_a_worker_is_replaced_after_so_many_verdicts(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[WorkerClient] = []
    start = WorkerClient.start_worker

    def start_worker(one: WorkerClient) -> list[str]:
        started.append(one)
        return start(one)

    monkeypatch.setattr("kernels_eval.pool.worker_client.WORKER_VERDICTS", 2)
    monkeypatch.setattr(WorkerClient, "start_worker", start_worker)
    with Judge(JudgeConfig(workers=1, device="cpu", compile="never")) as judge:
        verdicts = [judge.evaluate(ROW_PROBLEM, f"{ROW_KERNEL}# {number}") for number in range(9)]
    assert [verdict.status for verdict in verdicts] == [Status.CORRECT] * 9
    # Nine verdicts of at most two each; the reserves may have given some of them.
    assert len(started) >= 5
