"""A judge whose verdict a kernel names itself, a writer with a script, and the double of OpenAI's server."""

import asyncio
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from extras.adapters.scoring import Scorer
from extras.generation.search import episode_for_search
from extras.generation.writers import Draft
from kernels_eval.config import JudgeConfig
from kernels_eval.problem import EXAMPLE_PROBLEM, Problem
from kernels_eval.verdict import Status, TimingSource, Verdict, fault
from tasks.rollout.config import EpisodeConfig


class NamedJudge:
    """Judges a kernel by what it says: `# speedup 1.5`, `# incorrect`, `# fault`; `# lucky` fails the last judgement."""

    def __init__(self) -> None:
        self.config = JudgeConfig(device="cpu")
        self.judged: list[tuple[str, Mapping[str, Any]]] = []

    async def evaluate_async(
        self,
        problem: Problem,
        kernel_source: str,
        backend: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Verdict:
        self.judged.append((kernel_source, settings or {}))
        await asyncio.sleep(0.001)
        if "# reference" in kernel_source:
            return fault("reference_failed", "Model raised")
        if "# fault" in kernel_source:
            return fault("judge_fault", "lost worker")
        if "# timed" in kernel_source:  # as on a GPU: half as fast over torch.compile
            speedup = 2.0 if (settings or {}).get("baseline") != "compile" else 1.0
            return Verdict(
                status=Status.CORRECT, compiled=True, correct=True, speedup=speedup, timing_source=TimingSource.GPU,
                hardware="NVIDIA H100",
            )  # fmt: skip
        found = re.search(r"# speedup ([\d.]+)", kernel_source)
        if found is None or ("# lucky" in kernel_source and settings):
            return Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values", error_message="0 ≠ 1")
        return Verdict(
            status=Status.CORRECT,
            compiled=True,
            correct=True,
            speedup=float(found[1]),
            timing_source=TimingSource.ROOFLINE,
        )


class ScriptedWriter:
    """Gives out answers in turn: a remark becomes a kernel that makes it, an exception is raised."""

    name = "scripted"
    digest = "0123456789abcdef"

    def __init__(self, remarks: Sequence[str | Exception], delay_s: float = 0.0) -> None:
        self.remarks = remarks
        self.delay_s = delay_s
        self.asked: list[tuple[list[dict[str, str]], int]] = []

    async def write(self, messages: Sequence[dict[str, str]], seed: int, agent: str = "solver") -> Draft:
        remark = self.remarks[len(self.asked) % len(self.remarks)]
        self.asked.append((list(messages), seed))
        await asyncio.sleep(self.delay_s)
        if isinstance(remark, Exception):
            raise remark
        return Draft(answered(remark), 100, 10, truncated=False)

    async def close(self) -> None:
        pass


def answered(remark: str) -> str:
    return "no code" if remark == "nothing" else f"Here.\n```python\n# {remark}\nclass ModelNew: ...\n```\n"


@pytest.fixture
def judge() -> NamedJudge:
    return NamedJudge()


@pytest.fixture
def scorer(judge: NamedJudge) -> Iterator[Scorer]:
    with Scorer(judge, episode_for_search(EpisodeConfig(max_turns=3))) as scorer:  # type: ignore[arg-type]
        yield scorer


@pytest.fixture
def writer() -> Callable[..., ScriptedWriter]:
    return ScriptedWriter


@pytest.fixture
def problem() -> Problem:
    return Problem(problem_id="p", source=EXAMPLE_PROBLEM)


@pytest.fixture(scope="session")
def openai_double() -> Any:
    from imported import import_file

    return import_file(Path(__file__).parents[3] / "doubles" / "openai_server.py").openai_double
