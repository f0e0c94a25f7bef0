"""A rollout that was killed goes on with the episodes that it had finished, and ends as if nothing had happened."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tasks.problems.row import Split
from tasks.rollout.config import EpisodeConfig, RolloutConfig, SamplingConfig
from tasks.rollout.engines import Generation, GenerationRequest
from tasks.rollout.episode import RolloutContext, plan_episodes
from tasks.rollout.episode_loop import EpisodeLoop, RolloutCounts
from tasks.rollout.judge_client import JudgeClient
from tasks.rollout.kept_episodes import KeptEpisodes, kept_episodes
from tasks.trajectories.schema import Termination, Trajectory

PROBLEMS, SAMPLES = 6, 4


class Killed(Exception):
    """The process that rolled out is gone."""


def play(
    simulation: Any,
    tokenizer: Any,
    folder: Path,
    run_id: str = "run",
    answers: int | None = None,
    judge: Any = None,
    config: RolloutConfig | None = None,
    cohort_size: int = 1,
) -> tuple[list[Trajectory], RolloutCounts, list[GenerationRequest]]:
    """Play a rollout that keeps its episodes in `folder`; it is killed after so many answers."""

    class Engine(simulation.FaultyEngine):
        async def generate(
            self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
        ) -> AsyncIterator[tuple[int, Generation]]:
            async for answer in super().generate(requests, sampling):
                self.answers = getattr(self, "answers", 0) + 1
                if answers is not None and self.answers > answers:
                    await asyncio.sleep(0.05)  # what was answered before is judged
                    raise Killed
                yield answer

    engine = Engine(tokenizer)
    engine.cohort_size = cohort_size
    context = RolloutContext(
        run_id=run_id,
        policy_digest="digest",
        tokenizer=tokenizer,
        episode=EpisodeConfig(prompt="source", feedback="brief"),
        sampling=SamplingConfig(max_new_tokens=64),
        backend="triton",
    )
    judge_client = JudgeClient(judge or simulation.FaultyJudge(), simulation.reward_on, 5)
    plans = plan_episodes(simulation.problem_rows(PROBLEMS), Split.TRAIN, PROBLEMS, SAMPLES, iteration=1, seed=5)

    counts = RolloutCounts()

    async def played() -> list[Trajectory]:
        with kept_episodes(folder, run_id, gamma=0.4) as kept:
            return await EpisodeLoop(context, engine, judge_client, counts, config=config, kept=kept).run(plans)

    trajectories: list[Trajectory] = []
    with suppress(Killed):
        trajectories = asyncio.run(played())
    return trajectories, counts, engine.requests


def comparable(trajectories: Sequence[Trajectory]) -> dict[str, Any]:
    return {
        each.trajectory_id: (
            each.run_id, each.group_id, each.level, each.termination,
            [(turn.prompt_token_ids, turn.response_token_ids, turn.response_logprobs, turn.verdict.status, turn.reward)
             for turn in each.turns],
        )
        for each in trajectories
    }  # fmt: skip


def kept_ids(folder: Path) -> set[str]:
    """Return the ids of the episodes that another attempt would find."""
    return set(KeptEpisodes(folder, "run", 0.4))


def test_a_killed_rollout_goes_on(simulation: Any, small_tokenizer: Any, tmp_path: Path) -> None:
    whole, _, all_requests = play(simulation, small_tokenizer, tmp_path / "undisturbed")
    folder = tmp_path / "kept"
    play(simulation, small_tokenizer, folder, answers=len(all_requests) // 2)
    finished = kept_ids(folder)
    assert 3 <= len(finished) < PROBLEMS * SAMPLES
    again, counts, requests = play(simulation, small_tokenizer, folder, run_id="another")
    assert comparable(again) == comparable([replace(each, run_id="another") for each in whole])
    asked = {request.name.split(" turn ")[0] for request in requests}
    assert asked == {each.trajectory_id for each in whole} - finished
    assert counts.finished == counts.planned == PROBLEMS * SAMPLES
    assert counts.turns == sum(len(each.turns) for each in whole)
    assert counts.tokens == sum(len(turn.response_token_ids) for each in whole for turn in each.turns)
    assert 0 < counts.kept_tokens < counts.tokens
    assert not folder.exists(), "published: nobody needs them any more"


def test_a_cohort_is_taken_over_whole_or_played_whole(simulation: Any, small_tokenizer: Any, tmp_path: Path) -> None:
    """The engine's batches stay what they were: with some engines an answer's last bits depend on its batch."""
    size = SAMPLES * PROBLEMS // 3
    folder = tmp_path / "kept"
    whole, _, all_requests = play(simulation, small_tokenizer, tmp_path / "undisturbed", cohort_size=size)
    play(simulation, small_tokenizer, folder, answers=len(all_requests) - 1, cohort_size=size)
    assert len(kept_ids(folder)) in (size, 2 * size)
    again, _, requests = play(simulation, small_tokenizer, folder, cohort_size=size)
    assert comparable(again) == comparable(whole)
    assert len(requests) < len(all_requests)


def test_answers_that_several_share_stay_shared(simulation: Any, small_tokenizer: Any, tmp_path: Path) -> None:
    config = RolloutConfig(samples_per_kernel=2, samples_per_problem=SAMPLES)
    whole, _, all_requests = play(simulation, small_tokenizer, tmp_path / "undisturbed", config=config)
    folder = tmp_path / "kept"
    play(simulation, small_tokenizer, folder, answers=len(all_requests) // 2, config=config)
    assert kept_ids(folder)
    again, _, _ = play(simulation, small_tokenizer, folder, config=config)
    assert comparable(again) == comparable(whole)


def test_an_episode_on_which_the_machine_failed_is_played_again(
    simulation: Any, small_tokenizer: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "kept"
    _, _, all_requests = play(simulation, small_tokenizer, tmp_path / "undisturbed")
    failing = simulation.FaultyJudge(fault_rate=0.2)
    play(simulation, small_tokenizer, folder, answers=len(all_requests) // 2, judge=failing)
    assert kept_ids(folder)
    again, counts, _ = play(simulation, small_tokenizer, folder)
    assert counts.faults == 0
    assert all(each.termination is not Termination.INFRASTRUCTURE_ERROR for each in again)


@pytest.mark.parametrize("harm", ["cut", "changed", "gone", "no manifest"])
def test_a_damaged_part_is_played_again(
    simulation: Any, small_tokenizer: Any, tmp_path: Path, harm: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "kept"
    whole, _, all_requests = play(simulation, small_tokenizer, tmp_path / "undisturbed")
    play(simulation, small_tokenizer, folder, answers=len(all_requests) // 2)
    for part in folder.iterdir():
        table = part / "turns.parquet"
        content = table.read_bytes()
        if harm == "cut":
            table.write_bytes(content[: len(content) // 2])
        elif harm == "changed":
            table.write_bytes(content[:200] + b"x" + content[201:])
        elif harm == "gone":
            table.unlink()
        else:
            (part / "manifest.json").unlink()
    again, _, requests = play(simulation, small_tokenizer, folder)
    assert comparable(again) == comparable(whole)
    assert len(requests) == len(all_requests)
    assert harm == "no manifest" or "played again" in caplog.text


def test_what_is_finished_is_written_soon(tmp_path: Path, simulation: Any, small_tokenizer: Any) -> None:
    """A process that is killed with -9 writes nothing at its end."""
    whole, _, _ = play(simulation, small_tokenizer, tmp_path / "undisturbed")

    async def kept() -> KeptEpisodes:
        episodes = KeptEpisodes(tmp_path / "kept", "run", 0.4, write_every_s=0)
        for each in whole:
            await episodes.keep([each])
        return episodes

    asyncio.run(kept())
    assert kept_ids(tmp_path / "kept") == {each.trajectory_id for each in whole}


def test_a_full_disk_costs_the_finished_episodes_and_not_the_rollout(
    simulation: Any, small_tokenizer: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "a file"
    blocked.write_text("")
    whole, _, _ = play(simulation, small_tokenizer, tmp_path / "undisturbed")
    episodes = KeptEpisodes(blocked / "kept", "run", 0.4)
    asyncio.run(episodes.keep(whole))
    episodes.write()
    assert f"{len(whole)} finished episodes not kept" in caplog.text
