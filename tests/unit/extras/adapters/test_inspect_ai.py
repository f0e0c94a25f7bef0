"""Inspect AI evaluates our task with its own runner and its mock model; a fault is an unscored sample."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("inspect_ai", reason="Inspect AI is not installed (extra `inspect`)")

import inspect_ai
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate

from extras.adapters import inspect_ai as adapter
from extras.adapters.scoring import Scorer
from kernels_eval.problem import EXAMPLE_PROBLEM
from tasks.problems.config import ProblemsConfig
from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig

SETTINGS = adapter.KernelSettings(episode=EpisodeConfig(prompt="source", feedback="brief", max_turns=3))


@pytest.fixture(autouse=True)
def scripted_judge(monkeypatch: pytest.MonkeyPatch, judge: Any) -> None:
    monkeypatch.setattr(adapter, "scorer_of", lambda settings: Scorer(judge, settings.episode))


@pytest.fixture
def problems(tmp_path: Path) -> ProblemsConfig:
    path = tmp_path / "problems.jsonl"
    rows = [
        {"problem_id": f"p{n}", "source": EXAMPLE_PROBLEM.replace("1024", str(1024 + n)), "split": "heldout"}
        for n in range(2)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ProblemsConfig(source="jsonl", path=str(path), flag_trivial=False)


def evaluated(problems: ProblemsConfig, tmp_path: Path, answers: list[str], solver: Any) -> Any:
    outputs = [ModelOutput.from_content("mockllm/model", text) for text in answers]
    for output in outputs:
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)  # else it loads a tokenizer to count
    model = get_model("mockllm/model", custom_outputs=outputs)
    task = inspect_ai.Task(
        dataset=adapter.kernel_dataset(problems, SETTINGS, Split.HELDOUT),
        solver=solver,
        scorer=adapter.kernel_score(SETTINGS),
    )
    (log,) = inspect_ai.eval(task, model=model, log_dir=str(tmp_path / "logs"), display="none", max_samples=1)
    assert log.status == "success", log.error
    return log


def metrics(log: Any) -> dict[str, float]:
    return {score.name: score.metrics["mean"].value for score in log.results.scores}


def test_turns_until_the_episode_ends(problems: ProblemsConfig, tmp_path: Path, answer: Any):
    answers = [answer("incorrect"), answer("speedup 2.5"), answer("speedup 1.2"), answer("incorrect"), "no kernel"]
    log = evaluated(problems, tmp_path, answers, adapter.kernel_turns(SETTINGS))
    assert metrics(log) == pytest.approx({"correct": 1, "reward": (1.8 + 0.5) / 2, "speedup": (2.5 + 1.2) / 2})
    first = log.samples[0]
    assert [message.role for message in first.messages] == ["user", "assistant", "user", "assistant"]
    assert first.messages[2].text == "incorrect\nwrong_values"
    assert first.scores["kernel_score"].metadata["turn_rewards"] == pytest.approx([0.1, 1.8])


def test_another_solvers_last_answer(problems: ProblemsConfig, tmp_path: Path, answer: Any):
    log = evaluated(problems, tmp_path, [answer("speedup 1.5"), answer("incorrect")], generate())
    assert metrics(log) == pytest.approx({"correct": 0.5, "reward": (0.8 + 0.1) / 2, "speedup": 0.75})


def test_a_fault_is_in_no_metric(problems: ProblemsConfig, tmp_path: Path, answer: Any):
    answers = [answer("speedup 1.2"), answer("fault"), answer("speedup 2.5")]
    log = evaluated(problems, tmp_path, answers, adapter.kernel_turns(SETTINGS))
    assert metrics(log) == pytest.approx({"correct": 1, "reward": 1.8, "speedup": 2.5})
    faulty = log.samples[0].scores["kernel_score"]
    assert all(math.isnan(value) for value in faulty.value.values())
    assert faulty.explanation == "lost worker"
