"""docs/doors.md: its table is that of the settings, and each example runs from a folder of its own."""

import asyncio
import importlib
import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from flows.settings.configuration import RunConfig, check_configuration, overridden
from kernels_eval import Status, Verdict, rewards, sources
from kernels_eval.backends import backend_named
from kernels_eval.doors import GROUP, Door
from kernels_eval.frozen import decisive_part, named_code, with_source
from kernels_eval.rewards import REWARD_DOOR, TERM_DOOR, Answer, reward_of
from tasks.problems.loaders import load_entries
from tasks.problems.pairs import load_pairs
from tasks.rollout.config import CURRICULUM, ENGINE, EPISODE_TASK, EpisodeConfig
from tasks.rollout.curriculum import CurriculumState
from tasks.rollout.engines import FinishReason, Generation
from tasks.rollout.feedback import feedback_text
from tasks.rollout.prompts import prompt_messages
from tasks.tracking.figures import new_line
from tasks.tracking.live import LiveTracking
from tasks.tracking.wandb_run import TrackedRun
from tasks.trajectories.returns import credited
from tasks.update.config import CorrectionConfig
from tasks.update.corrections import correction
from tasks.update.credit_assignment import Score, turn_advantages
from tasks.update.kl import kl_penalty
from tasks.update.objective import policy_loss

PAGE = (Path(__file__).parents[3] / "docs" / "doors.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
PROBLEM = (
    "import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n    def forward(self, x):\n        return x + 1\n"
    "def get_inputs():\n    return [torch.rand(64)]\ndef get_init_inputs():\n    return []\n"
)
KERNEL = "class ModelNew:\n    pass\n"
CORRECT = Verdict.model_validate({"status": Status.CORRECT, "compiled": True, "correct": True, "speedup": 2.0})
TOKENS, MASK = torch.full((2, 3), -0.5), torch.ones(2, 3)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's folder with every file of the page."""
    for section in SECTIONS.values():
        text = re.search(r"```python\n(.*?)```", section, re.DOTALL)
        assert text is not None
        (tmp_path / text[1].splitlines()[0].removeprefix("# ")).write_text(text[1])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    importlib.invalidate_caches()
    caches: list[Any] = [rewards._loaded, rewards._parsed, backend_named]
    for cached in caches:
        cached.cache_clear()
    sources.forget()
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("my_")]:
        del sys.modules[name]
    for cached in caches:
        cached.cache_clear()
    sources.forget()


def configured(door: str) -> RunConfig:
    """Return the configuration that the door's command gives."""
    command = re.search(r"```bash\nkernelmill (.*?)```", SECTIONS[door], re.DOTALL)
    assert command is not None
    overrides = re.findall(r'--set (?:"([^"]*)"|(\S+))', command[1])
    values = [quoted or plain for quoted, plain in overrides]
    values += [f"judge.backend={name}" for name in re.findall(r"--backend (\S+)", command[1])]
    return overridden(check_configuration({}, "nothing"), values)


def a_reward(folder: Path) -> None:
    assert reward_of(configured("reward").rollout.episode.reward, CORRECT) == 2.0


def a_term(folder: Path) -> None:
    name = configured("term").rollout.episode.reward
    assert reward_of(name, CORRECT, Answer("x = 1  # one\ny = 2", 9)) == pytest.approx(1.3 + 0.05 * 0.5)


def a_credit(folder: Path) -> None:
    assert credited([0.1, None, 2.0], configured("credit").update.credit, 0.5) == [0.5, None, 2.0]


def an_advantage(folder: Path) -> None:
    turns = [Score(score, ("p", 0, "solver"), name) for score, name in ((1.0, "a"), (2.0, "b"), (6.0, "c"))]
    assert turn_advantages(turns, configured("advantage").update.estimator).tolist() == [-1, 0, 4]


def a_loss(folder: Path) -> None:
    loss, figures = policy_loss(TOKENS + 1, TOKENS, MASK, MASK, configured("loss").update)
    torch.testing.assert_close(loss, torch.full((2, 3), -1.28 * 0.5))
    assert bool(figures["clipped"].all())


def a_divergence(folder: Path) -> None:
    assert kl_penalty(TOKENS, TOKENS - 3, configured("kl").update.kl_estimator).tolist() == [[4.0] * 3] * 2


def a_correction(folder: Path) -> None:
    settings: CorrectionConfig = configured("correction").update.correction
    found = correction(TOKENS + 1, TOKENS, MASK, settings.model_copy(update={"veto": None}))
    torch.testing.assert_close(found.weights, torch.full((2, 3), 1.6487212))


def a_loader(folder: Path) -> None:
    (folder / "FOLDER").mkdir()
    (folder / "FOLDER" / "add.txt").write_text(f"2\n{PROBLEM}")
    (entry,) = load_entries(configured("loader").problems.model_copy(update={"flag_trivial": False}))
    assert (entry.problem.name, entry.problem.level) == ("add", 2)


def a_reader_of_pairs(folder: Path) -> None:
    (folder / "FOLDER").mkdir()
    (folder / "FOLDER" / "add.problem.py").write_text(PROBLEM)
    (folder / "FOLDER" / "add.kernel.py").write_text(KERNEL)
    data = configured("pairs").sft.data
    (pair,) = load_pairs(Path(data.path or ""), reader=data.reader)
    assert (pair.problem_source, pair.kernel_source) == (PROBLEM, KERNEL)


def a_task(folder: Path) -> None:
    task = EPISODE_TASK.load(configured("task").rollout.episode.task)
    assert task.turn_limit([CORRECT], 1, EpisodeConfig()) == 1
    assert task.turn_limit([Verdict(status=Status.TIMEOUT)], 1, EpisodeConfig()) == EpisodeConfig().max_turns


def a_prompt(folder: Path) -> None:
    (request,) = prompt_messages(PROBLEM, [], configured("prompt").rollout.episode)
    assert request.content == f"Write ModelNew with Triton kernels for this program:\n{PROBLEM}"


def feedback(folder: Path) -> None:
    style = configured("feedback").rollout.episode.feedback
    assert feedback_text(CORRECT, 1.3, style) == "Right, 2.0 times as fast as PyTorch."
    assert feedback_text(Verdict(status=Status.TIMEOUT), 0.0, style) == "timeout"


def a_curriculum(folder: Path) -> None:
    settings = configured("curriculum").rollout.curriculum
    following = CURRICULUM.load(settings.stages)(CurriculumState(turns=1, level=2), 0.9, settings, 3, [1, 2, 4])
    assert (following.turns, following.level) == (3, 4)


def a_tracker(folder: Path) -> None:
    tracked = TrackedRun(directory=str(folder), run_id="r", series="s")
    live = LiveTracking(configured("tracker").tracking, tracked)
    live.log_line(new_line(0, "rollout", "digest", {"mean_reward": 0.5}))
    live.finish()
    line = json.loads((folder / "tracked.jsonl").read_text())
    assert (line["row"], line["rollout/mean_reward"], line["iteration"]) == (0, 0.5, 0)
    assert live.address == str(folder / "tracked.jsonl")


def a_back_end(folder: Path) -> None:
    backend = backend_named(configured("backend").judge.backend)
    source = "import triton\n@triton.jit\ndef kernel_add(x): pass\n@triton.jit\ndef other(x): pass\n"
    assert backend.own_kernels(source) == {"kernel_add"}
    assert backend.interprets


class _Embedded:
    """Stands for the embedded engine, whose weights take seconds to load: three tokens for each request."""

    context_tokens, cohort_size, is_closed = 64, 2, False

    async def generate(self, requests: Any, sampling: Any) -> AsyncIterator[tuple[int, Generation]]:
        for index in reversed(range(len(requests))):
            yield index, Generation((1, 2, 3), (-1.0, -1.0, -1.0), FinishReason.STOP, seconds=0.1)

    async def close(self) -> None:
        self.is_closed = True


def an_engine(folder: Path) -> None:
    open_engine = ENGINE.load(configured("engine").rollout.engine)
    inner = _Embedded()
    sys.modules["my_engine"].load_engine = lambda path, tokenizer, batch: (
        inner if (path, batch) == ("here", 9) else None
    )
    engine = open_engine(SimpleNamespace(path="here"), None, SimpleNamespace(batch_size=9))
    assert (engine.context_tokens, engine.cohort_size) == (64, 2)

    async def use() -> list[int]:
        found = [index async for index, _ in engine.generate(["a", "b"], None)]
        await engine.close()
        return found

    assert asyncio.run(use()) == [1, 0]
    assert (engine.tokens, inner.is_closed) == (6, True)


OPERATIONAL = ("tracker",)
"""Doors that decide no result."""
EXERCISES: dict[str, Callable[[Path], None]] = {
    "reward": a_reward, "term": a_term, "credit": a_credit, "advantage": an_advantage, "loss": a_loss,
    "kl": a_divergence, "correction": a_correction, "loader": a_loader, "pairs": a_reader_of_pairs, "task": a_task,
    "prompt": a_prompt, "feedback": feedback, "curriculum": a_curriculum, "tracker": a_tracker, "backend": a_back_end, "engine": an_engine,
}  # fmt: skip


@pytest.mark.parametrize("door", SECTIONS)
def test_an_example_does_what_it_says(door: str, folder: Path) -> None:
    EXERCISES[door](folder)


@pytest.mark.parametrize("door", SECTIONS)
def test_an_example_is_imported_by_the_checks_and_counts_in_keys(door: str, folder: Path) -> None:
    config = configured(door)
    (own,) = [(mark, value) for _, mark, value in named_code(config) if not mark.is_ours(value)]
    own[0].verify(own[1])
    before = decisive_part(config, of_code=with_source)
    file = folder / re.findall(r"# (my_\w+\.py)", SECTIONS[door])[0]
    file.write_text(file.read_text() + "\n\nADDED = 1\n")
    sources.forget()
    assert (decisive_part(config, of_code=with_source) != before) == (door not in OPERATIONAL)


def test_the_table_has_every_door_with_its_setting() -> None:
    rows = re.findall(r"^\| \[(\w+)\]\(#\w+\) \| ([^|]*) \|.*\| `([\w.]+)` \|$", PAGE, re.MULTILINE)
    assert [name for name, _, _ in rows] == list(SECTIONS)
    assert all(group == GROUP + name for name, _, group in rows)
    unset = {"sft": {"data": {"reader": "my_pairs:read"}}, "problems": {"heldout_source": "my_problems:read"}}
    config = RunConfig.model_validate(unset)
    settings = {setting: mark for setting, mark, _ in named_code(config)}
    assert {setting for _, cell, _ in rows for setting in re.findall(r"`([\w.]+)`", cell)} == set(settings)
    doors = {mark.name for mark in settings.values() if isinstance(mark, Door)}
    assert doors | {REWARD_DOOR.name, TERM_DOOR.name} == set(SECTIONS)
