"""A schedule of faults, drawn from one integer: the same seed gives the same faults at the same places of a run.

The run trains one policy, or a team of two agents.

A moment is a stage and a share of the seconds that this stage takes when nothing disturbs it. So a schedule means the
same on a slow machine and on a fast one, and after the run was continued. Of a stage that a fault repeats, the next
computation counts.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kinds of faults."""

    DRIVER_KILLED = "driver killed"
    DRIVER_TERMINATED = "driver terminated"
    """SIGTERM, as a scheduler that wants the machine back sends it."""
    NODE_LOST = "node lost"
    """Every process of the run is killed at once."""
    RANK_KILLED = "rank killed"
    RANK_STOPPED = "rank stopped"
    """A training rank stands still for a while, then goes on."""
    ROLLOUT_KILLED = "rollout killed"
    ENGINE_KILLED = "engine killed"
    JUDGE_KILLED = "judge killed"
    JUDGE_SLOW = "judge slow"
    """All processes of the judge stand still for a while, then go on."""
    RAYLET_KILLED = "raylet killed"
    CONTROL_KILLED = "control killed"
    """Ray's control process (GCS)."""
    PREFECT_KILLED = "prefect killed"
    DISK_FULL = "disk full"
    GRADIENT_NAN = "gradient nan"
    STORE_LOST = "store lost"
    """The node is lost, and with it a file, a whole entry of the store, or a kept result."""
    STORE_GARBLED = "store garbled"
    """The node is lost, and afterwards one file of the store has other bytes, or half of them."""
    CLOCK_JUMPED = "clock jumped"


@dataclass(frozen=True)
class Stages:
    """Labels of the stages of a run that is disturbed, in their order."""

    every: tuple[str, ...]
    training: tuple[str, ...]
    judging: tuple[str, ...]

    def of(self, kind: Kind) -> tuple[str, ...]:
        """Return the stages that a kind of fault concerns; most come anywhere."""
        if kind in (Kind.RANK_KILLED, Kind.RANK_STOPPED, Kind.GRADIENT_NAN):
            return self.training
        if kind in (Kind.ROLLOUT_KILLED, Kind.ENGINE_KILLED, Kind.JUDGE_KILLED, Kind.JUDGE_SLOW):
            return self.judging
        if kind in (Kind.STORE_LOST, Kind.STORE_GARBLED):  # the store of an early run has nothing to lose
            return self.every[self.every.index(self.training[0]) :]
        return self.every


POLICY = Stages(
    every=(
        "problem set", "check of the problem set", "SFT data", "check of the SFT data", "SFT",
        "held-out rollout of policy 0", "evaluation of policy 0", "rollout 0", "check of rollout 0", "update 0",
        "check of update 0", "rollout 1", "check of rollout 1", "update 1", "check of update 1",
        "held-out rollout of policy 2", "evaluation of policy 2",
    ),
    training=("SFT", "update 0", "update 1"),
    judging=("held-out rollout of policy 0", "rollout 0", "rollout 1", "held-out rollout of policy 2"),
)  # fmt: skip
TEAM = Stages(
    every=(
        "problem set", "check of the problem set", "SFT data", "check of the SFT data", "SFT of the generator",
        "SFT of the optimizer", "team 0, before the joint epoch", "rollout for the joint epoch",
        "pairs of the joint epoch", "check of the pairs of the joint epoch", "joint epoch of the generator",
        "joint epoch of the optimizer", "team 0", "held-out rollout of policy 0", "evaluation of policy 0",
        "rollout 0", "check of rollout 0", "update 0 of the generator", "check of update 0 of the generator",
        "update 0 of the optimizer", "check of update 0 of the optimizer", "team 1", "rollout 1", "check of rollout 1",
        "update 1 of the optimizer", "check of update 1 of the optimizer", "update 1 of the generator",
        "check of update 1 of the generator", "team 2", "held-out rollout of policy 2", "evaluation of policy 2",
    ),
    training=(
        "SFT of the generator", "SFT of the optimizer", "joint epoch of the generator", "joint epoch of the optimizer",
        "update 0 of the generator", "update 0 of the optimizer", "update 1 of the optimizer",
        "update 1 of the generator",
    ),
    judging=(
        "rollout for the joint epoch", "held-out rollout of policy 0", "rollout 0", "rollout 1",
        "held-out rollout of policy 2",
    ),
)  # fmt: skip
"""Of two agents with weights of their own. The second iteration updates them in the other order."""
MOST_FAULTS = 3


@dataclass(frozen=True)
class Fault:
    """One fault. `share`: of the stage's undisturbed seconds, after its start. `pick`: which of several things."""

    kind: Kind
    stage: str
    share: float
    pick: float
    hold_s: float
    """Seconds that it lasts, where it does not last for ever; of a clock: by which it jumps."""


@dataclass(frozen=True)
class Schedule:
    """Faults of one run."""

    seed: int
    engine: str
    """`local`, or `sglang`: a server that the run starts."""
    staleness: int
    faults: tuple[Fault, ...]
    pause_s: float
    """Seconds until the command is given again."""
    team: bool = False
    """A run of two agents."""

    @property
    def own_server(self) -> bool:
        """True if the run starts a Prefect server itself, which a fault may kill."""
        return any(fault.kind == Kind.PREFECT_KILLED for fault in self.faults)

    @property
    def stages(self) -> Stages:
        """Stages of the run."""
        return TEAM if self.team else POLICY


def draw(seed: int, without: frozenset[Kind] = frozenset(), team: bool = False) -> Schedule:
    """Return the schedule of a seed. Faults of kinds that the machine does not allow are left out, the others stay."""
    generator, stages = random.Random(f"faults {seed}{' of a team' if team else ''}"), TEAM if team else POLICY
    engine = generator.choice(["local", "local", "local", "sglang"])
    staleness = generator.choice([0, 1])
    faults: list[Fault] = []
    for _ in range(generator.randint(1, MOST_FAULTS)):
        kind = generator.choice([each for each in Kind if engine == "sglang" or each != Kind.ENGINE_KILLED])
        fault = Fault(
            kind=kind,
            stage=generator.choice(stages.of(kind)),
            share=round(generator.uniform(0, 0.95), 3),
            pick=round(generator.random(), 6),
            hold_s=round(
                generator.choice([-1, 1]) * 10 ** generator.uniform(2, 5)
                if kind == Kind.CLOCK_JUMPED
                else generator.uniform(1, 20),
                1,
            ),
        )
        if kind not in without:
            faults.append(fault)
    faults.sort(key=lambda fault: (stages.every.index(fault.stage), fault.share))
    return Schedule(seed, engine, staleness, tuple(faults), round(generator.uniform(0, 5), 1), team)


def killed_in(places: Sequence[str], number: int, team: bool = False) -> Schedule:
    """Return a schedule without chance: the driver is killed at each of these places, in one run.

    A place is a stage, for its middle, or `STAGE@SHARE`; @0 kills as soon as it has begun. `number`: place of the
    schedule in a list of such ones; it has its negative as seed. Raises ValueError for what is no such place.
    """
    every, found = (TEAM if team else POLICY).every, list[Fault]()
    for place in places:
        stage, _, share = place.partition("@")
        if stage not in every:
            raise ValueError(f"expected stages of the run ({'; '.join(every)}), found {stage!r}")
        if not 0 <= float(share or 0.5) < 1:  # it would hit nothing
            raise ValueError(f"expected a share of the stage from 0 to below 1, found {place!r}")
        found.append(Fault(Kind.DRIVER_KILLED, stage, float(share or 0.5), 0.0, 0.0))
    found.sort(key=lambda fault: (every.index(fault.stage), fault.share))
    return Schedule(-number, "local", 0, tuple(found), 0.0, team)
