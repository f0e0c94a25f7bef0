"""Caller and one-shot process: finds tasks that a trivial answer passes, and references that are random.

Trivial answers are zeros, a constant, the answer to another input, and the input itself. A kernel for such a task
shows nothing. Tasks are checked when a suite is loaded, in a separate process: it imports torch, the caller does not.
Inputs, oracle and tolerances are the judge's. A problem that fails or exceeds the time limit is not flagged; the
judge reports its failure.

As a program (`python -m kernels_eval.reference.triviality`): writes `ready`, reads sources as JSON strings from
stdin, one per line, and answers each with one line: a Suitability as JSON.
"""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from enum import StrEnum
from pathlib import Path
from typing import Any

from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import EXAMPLE_PROBLEM

_TRIALS = 4
_PROGRESS_S = 1.0
_START_S = 120.0
_MOST_PROCESSES = 8
"""Each holds the tensors of one problem, of KernelBench's up to some GB."""


class TrivialAnswer(StrEnum):
    """Answer that needs no computation."""

    ZEROS = "zeros"
    MEAN = "mean"
    """The mean of the output for another input, everywhere."""
    STALE = "stale"
    """The output for another input."""
    INPUT = "input"
    """One of the inputs."""


class Suitability(FrozenModel):
    """Findings on one problem."""

    trivial: tuple[TrivialAnswer, ...] = ()
    """Trivial answers that pass it."""
    random: str | None = None
    """Reason why no kernel can agree with its reference, if that is random."""


def check_suitability(
    sources: Sequence[str],
    per_problem_s: float = 10.0,
    processes: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _all: None,
) -> list[Suitability]:
    """Return the findings on each problem. Problems are trusted: their code is run.

    `processes` share the problems; None: as many as there are CPUs, at most `_MOST_PROCESSES`. `progress` is called
    with the numbers of problems checked and of all, by the caller's thread.
    """
    wanted = processes or min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    remaining = iter(enumerate(sources))
    found = [Suitability()] * len(sources)
    lock = threading.Lock()

    taken = 0

    def following() -> tuple[int, str] | None:
        nonlocal taken
        with lock:
            item = next(remaining, None)
            taken += item is not None
            return item

    def work() -> None:
        while (item := following()) is not None:
            _check_in_one_process(item, following, found, per_problem_s)

    with ThreadPoolExecutor(max(1, min(wanted, len(sources)))) as pool:
        working = {pool.submit(work) for _ in range(max(1, min(wanted, len(sources))))}
        while working:
            done, working = wait(working, timeout=_PROGRESS_S, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            progress(min(taken, len(sources)) - len(working), len(sources))
    return found


def _check_in_one_process(
    item: tuple[int, str],
    following: Callable[[], tuple[int, str] | None],
    found: list[Suitability],
    per_problem_s: float,
) -> None:
    """Check the item and what follows, until none is left or a problem exceeds its time or ends the process."""
    package_parent = str(Path(__file__).resolve().parents[2])
    environment = {**os.environ, "PYTHONPATH": package_parent, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "kernels_eval.reference.triviality"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        _answer(process, None, _START_S)
        waiting: tuple[int, str] | None = item
        while waiting is not None:
            index, source = waiting
            line = _answer(process, source, per_problem_s)
            if not line:
                break
            found[index] = Suitability.model_validate_json(line)
            waiting = following()
        process.kill()


def _answer(process: "subprocess.Popen[str]", source: str | None, limit_s: float) -> str:
    """Send a problem, if one is given, and return the next line; the process is killed after the limit."""
    assert process.stdin is not None
    assert process.stdout is not None
    watch = threading.Timer(limit_s, process.kill)
    watch.start()
    try:
        if source is not None:
            process.stdin.write(json.dumps(source) + "\n")
            process.stdin.flush()
        return process.stdout.readline()
    except BrokenPipeError:
        return ""
    finally:
        watch.cancel()


def trivial_answers(source: str) -> list[str]:
    """Return the trivial answers that pass a problem on every kind of input that the judge draws. Imports torch."""
    from kernels_eval.reference.inputs import SecretSeed
    from kernels_eval.reference.reduction import MIN_REDUCED
    from kernels_eval.reference.reference import Reference

    reference = Reference(source, weight_seed=1)
    size = MIN_REDUCED if reference.can_be_reduced else None
    seed = SecretSeed(b"triviality")
    first = reference.expected(reference.draw(size, 0, seed, own=True), perturbed=True)
    left = set(TrivialAnswer)
    for trial in range(1, _TRIALS + 1):
        own = trial == _TRIALS
        drawn = reference.draw(size, trial, seed, own=own)
        inputs, expected = reference.with_expected(drawn, size, trial, seed)
        left = {answer for answer in left if _passes(answer, expected, first, inputs)}
    return sorted(left)


def _passes(answer: TrivialAnswer, expected: Any, first: Any, inputs: list[Any]) -> bool:
    import torch

    from kernels_eval.correctness.tolerance import compare

    for index, (native, oracle) in enumerate(zip(expected.native, expected.oracle, strict=True)):
        if answer is TrivialAnswer.ZEROS:
            guesses = [torch.zeros_like(native)]
        elif answer is TrivialAnswer.MEAN:
            guesses = [torch.full_like(native, first.oracle[index].double().nanmean().item())]
        elif answer is TrivialAnswer.STALE:
            guesses = [first.native[index]]
        else:
            guesses = [value for value in inputs if isinstance(value, torch.Tensor)]
        fitting = [guess for guess in guesses if guess.shape == native.shape and guess.dtype == native.dtype]
        if not any(compare(guess.contiguous(), oracle, native, "output").agrees for guess in fitting):
            return False
    return True


def main() -> None:
    """Answer each line of stdin in turn."""
    trivial_answers(EXAMPLE_PROBLEM)  # imports modules now: later time is the problems' own
    out = sys.stdout
    out.write("ready\n")
    out.flush()
    sys.stdout = sys.stderr  # output of problems is not an answer
    for line in sys.stdin:
        out.write(_suitability(json.loads(line)).model_dump_json() + "\n")
        out.flush()


def _suitability(source: str) -> Suitability:
    from kernels_eval.correctness.outputs import RandomReferenceError

    try:
        return Suitability(trivial=tuple(TrivialAnswer(name) for name in trivial_answers(source)))
    except RandomReferenceError as error:
        return Suitability(random=str(error))
    except Exception:  # noqa: BLE001 (a problem's own code may raise anything; the judge reports it)
        return Suitability()


if __name__ == "__main__":
    main()
