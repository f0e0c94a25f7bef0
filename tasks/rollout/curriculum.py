"""Curriculum: training begins with one turn and the lowest level, and advances when enough trajectories end correct.

The state of an iteration is a function of the batch before it, whose manifest holds its own state
(`metadata.curriculum`) and whose tables hold the results. A checkpoint's manifest holds both too: a run that continues
from a checkpoint without its trajectories continues from its stage.
"""

from collections.abc import Sequence
from statistics import fmean

from pydantic import Field

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.pipeline.references import CheckpointRef, ProblemSetRef, TrajectoryBatchRef
from tasks.pipeline.store import recorded
from tasks.problems.row import ProblemRow, Split
from tasks.rollout.config import CURRICULUM, CurriculumConfig, EpisodeConfig, RolloutConfig

MANIFEST_KEY = "curriculum"
_NAME = "a curriculum's state"


class CurriculumState(FrozenModel):
    """Limits of an iteration."""

    turns: int = Field(ge=1)
    """Turn limit of every episode."""
    level: int
    """Highest level of problems that are drawn."""
    rates: tuple[float, ...] = ()
    """Success rates of the iterations before this one on the same stage, oldest first."""


class CurriculumRecord(CurriculumState):
    """State and result of the iteration that a checkpoint comes from."""

    success_rate: float | None
    """Of its batch; None if nothing is known."""


def state_for(
    config: RolloutConfig,
    problems: ProblemSetRef,
    previous: TrajectoryBatchRef | None,
    policy: CheckpointRef | None = None,
) -> CurriculumState | None:
    """Return the state of the iteration after `previous`, else of the first one with `policy`; None: no curriculum."""
    if not config.curriculum.enabled:
        return None
    from tasks.problems.problem_set import read_problems

    levels = sorted({row.problem.level for row in read_problems(problems, Split.TRAIN)})
    if not levels:
        raise InputError(f"{problems.uri}: expected {Split.TRAIN.value} problems, found none")
    record = None if previous is None else record_of(previous)
    if record is None and policy is not None:
        record = recorded(policy, MANIFEST_KEY, CurriculumRecord, _NAME)
    if record is None:
        return CurriculumState(turns=1, level=levels[0])
    most_turns = max((config.episode.max_turns, *config.episode.horizon.level_turns))
    # A checkpoint may come from problems that began lower than these do.
    state = CurriculumState(turns=record.turns, level=max(record.level, levels[0]), rates=record.rates)
    return _stage_after(state, record.success_rate, config.curriculum, most_turns, levels)


def _stage_after(
    state: CurriculumState, rate: float | None, config: CurriculumConfig, most_turns: int, levels: Sequence[int]
) -> CurriculumState:
    """Return the next state by the configured function. Raises InputError if it is beyond what there is."""
    found = CURRICULUM.load(config.stages)(state, rate, config, most_turns, levels)
    if not isinstance(found, CurriculumState) or found.turns > most_turns or not levels[0] <= found.level <= levels[-1]:
        raise InputError(
            f"rollout.curriculum.stages: {config.stages} returned {found!r}, expected a CurriculumState of at most "
            f"{most_turns} turns and of a level from {levels[0]} to {levels[-1]}"
        )
    return found


def record_of(batch: TrajectoryBatchRef) -> CurriculumRecord | None:
    """Return the state that a batch was made with and its success rate; None if it was made without a curriculum."""
    state = recorded_state(batch)
    return None if state is None else CurriculumRecord(**state.model_dump(), success_rate=success_rate(batch))


def next_state(
    state: CurriculumState, rate: float | None, config: CurriculumConfig, most_turns: int, levels: Sequence[int]
) -> CurriculumState:
    """Return the state after an iteration with this success rate; `levels`: of the training problems, ascending."""
    if rate is None:
        return state
    rates = (*state.rates, rate)[-config.iterations :]
    if len(rates) < config.iterations or fmean(rates) < config.success_rate:
        return state.model_copy(update={"rates": rates})
    higher = [level for level in levels if level > state.level]
    more_turns = [CurriculumState(turns=state.turns + 1, level=state.level)] if state.turns < most_turns else []
    harder = [CurriculumState(turns=state.turns, level=level) for level in higher[:1]]
    risen = more_turns + harder if config.first == "turns" else harder + more_turns
    return risen[0] if risen else state.model_copy(update={"rates": rates})


def capped(episode: EpisodeConfig, turns: int) -> EpisodeConfig:
    """Return the shape of episodes of at most this many turns."""
    limits = tuple(min(limit, turns) for limit in episode.horizon.level_turns)
    longest = max((episode.max_turns, *episode.horizon.level_turns))
    horizon = episode.horizon.model_copy(
        # Extended episodes are the last stage of a curriculum.
        update={"level_turns": limits, "extension": episode.horizon.extension if turns >= longest else 0}
    )
    return episode.model_copy(update={"max_turns": min(episode.max_turns, turns), "horizon": horizon})


def rows_up_to(rows: Sequence[ProblemRow], level: int) -> list[ProblemRow]:
    """Return the problems of at most this level."""
    return [row for row in rows if row.problem.level <= level]


def recorded_state(batch: TrajectoryBatchRef) -> CurriculumState | None:
    """Return the state that a batch was made with; None if it was made without a curriculum."""
    return recorded(batch, MANIFEST_KEY, CurriculumState, _NAME)


def success_rate(batch: TrajectoryBatchRef) -> float | None:
    """Return the share of trajectories that ended with a correct kernel; faults of the machine do not count."""
    from tasks.trajectories.reader import read_trajectories

    verdicts = read_trajectories(batch)["final_verdict"].struct
    known = verdicts.field("correct").filter(verdicts.field("status") != "infrastructure_error")
    return float(known.cast(int).mean()) if len(known) else None  # pyright: ignore[reportArgumentType]
