"""A schedule of faults, drawn from one integer: the same seed gives the same faults at the same places of a run.

A moment is a stage and a share of the seconds that this stage takes when nothing disturbs it. So a schedule means the
same on a slow machine and on a fast one, and after the run was continued. Of a stage that a fault repeats, the next
computation counts.
"""

import random
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


TRAINING = ("SFT", "update 0", "update 1")
JUDGING = ("held-out rollout of policy 0", "rollout 0", "rollout 1", "held-out rollout of policy 2")
STAGES = (
    "problem set", "check of the problem set", "SFT data", "check of the SFT data", "SFT",
    "held-out rollout of policy 0", "evaluation of policy 0", "rollout 0", "check of rollout 0", "update 0",
    "check of update 0", "rollout 1", "check of rollout 1", "update 1", "check of update 1",
    "held-out rollout of policy 2", "evaluation of policy 2",
)  # fmt: skip
"""Labels of the stages of the run that is disturbed."""
PLACES = {
    Kind.RANK_KILLED: TRAINING,
    Kind.RANK_STOPPED: TRAINING,
    Kind.GRADIENT_NAN: TRAINING,
    Kind.ROLLOUT_KILLED: JUDGING,
    Kind.ENGINE_KILLED: JUDGING,
    Kind.JUDGE_KILLED: JUDGING,
    Kind.JUDGE_SLOW: JUDGING,
    Kind.STORE_LOST: STAGES[4:],
    Kind.STORE_GARBLED: STAGES[4:],
}
"""Stages that a kind of fault concerns; others come anywhere. The store of an early run has nothing to lose."""
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

    @property
    def own_server(self) -> bool:
        """True if the run starts a Prefect server itself, which a fault may kill."""
        return any(fault.kind == Kind.PREFECT_KILLED for fault in self.faults)


def draw(seed: int, without: frozenset[Kind] = frozenset()) -> Schedule:
    """Return the schedule of a seed. Faults of kinds that the machine does not allow are left out, the others stay."""
    generator = random.Random(f"faults {seed}")
    engine = generator.choice(["local", "local", "local", "sglang"])
    staleness = generator.choice([0, 1])
    faults: list[Fault] = []
    for _ in range(generator.randint(1, MOST_FAULTS)):
        kind = generator.choice([each for each in Kind if engine == "sglang" or each != Kind.ENGINE_KILLED])
        fault = Fault(
            kind=kind,
            stage=generator.choice(PLACES.get(kind, STAGES)),
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
    faults.sort(key=lambda fault: (STAGES.index(fault.stage), fault.share))
    return Schedule(seed, engine, staleness, tuple(faults), round(generator.uniform(0, 5), 1))
