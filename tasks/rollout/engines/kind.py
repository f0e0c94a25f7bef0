"""An engine before it is opened: checks, plans and flows ask it, so that none of them asks for its name.

`ENGINE` of each folder here is an `EngineKind`. A function of a user's own (docs/doors.md) is one without servers.
"""

from collections.abc import AsyncIterator, Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from kernels_eval.errors import InputError, KernelmillError, first_line, place_of
from tasks.agents.team import members_of
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import ENGINE, RolloutConfig, SamplingConfig
from tasks.rollout.engines import Engine, Generation, GenerationRequest


class Outcome(StrEnum):
    """Outcome of a look at what an engine needs."""

    OK = "ok"
    NOTE = "note"
    FAILED = "failed"


class Finding(NamedTuple):
    """Result of a look at what an engine needs, for `kernelmill verify`."""

    outcome: Outcome
    found: str
    fix: str = ""


class EarlyStart(Protocol):
    """Servers that start before their first policy is there."""

    config: RolloutConfig

    def engine(self, policy: CheckpointRef) -> Any:
        """Return an engine on them for a policy, which it does not hold yet; None if they did not start."""
        ...

    def remove_model(self) -> None:
        """Remove the model that they started with, once a policy is loaded."""
        ...


class EngineKind:
    """An engine that runs in the rollout's process and needs nothing else; those with servers say more."""

    label = "engine"
    """Name in the lines of `kernelmill verify`."""
    takes_weights = True
    """The next policy can be given to it: without that nothing can be trained."""

    def __init__(self, open_one: Callable[[CheckpointRef, Any, RolloutConfig], Engine]) -> None:
        self._open = open_one

    def __call__(self, policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
        """Return the engine with one policy loaded."""
        return self._open(policy, tokenizer, config)

    def open_team(self, policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
        """Return an engine for a team: one for each agent, opened in turn."""
        from tasks.rollout.engines.team import team_engine

        return team_engine({agent: opening() for agent, opening in self._openings(policy, tokenizer, config).items()})

    def _openings(
        self, policy: CheckpointRef, tokenizer: Any, config: RolloutConfig
    ) -> dict[str, Callable[[], Engine]]:
        return {agent: partial(self, member, tokenizer, config) for agent, member in members_of(policy).items()}

    def check(self, config: RolloutConfig, has_team: bool, is_here: bool) -> None:
        """Raise InputError for what would keep it from starting. `is_here`: it would start on this machine."""

    def look(self, config: RolloutConfig, is_here: bool) -> Finding:
        """Say whether what it needs is there."""
        return Finding(Outcome.OK, f"rollout.engine is {config.engine}: it needs no server")

    def servers(self, config: RolloutConfig, policies: int) -> int:
        """Return the number of servers that a run starts for so many policies."""
        return 0

    def compared_bytes(self, config: RolloutConfig) -> float:
        """Return the bytes a parameter of a checkpoint that is loaded beside it, for comparison; 0: none is."""
        return 0.0

    def start_early(
        self, config: RolloutConfig, write_model: Callable[[Path], Path], agents: Sequence[str]
    ) -> EarlyStart | None:
        """Have servers start with a model that `write_model` puts in a folder; None if there are none to start."""
        return None


class OwnEngine(EngineKind):
    """An engine that a function of the user's opens: what it lacks or raises is said in a line."""

    def __init__(self, open_one: Callable[[CheckpointRef, Any, RolloutConfig], Engine], name: str) -> None:
        super().__init__(open_one)
        self._name = name

    def __call__(self, policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
        """Return the engine. Raises InputError if the function raises, or its result lacks a member."""
        with self._in_a_line():
            engine = super().__call__(policy, tokenizer, config)
        missing = [name for name in ("context_tokens", "cohort_size", "generate", "close") if not hasattr(engine, name)]
        if missing:
            raise InputError(f"rollout.engine: {self._name} returned {type(engine).__name__} without {missing[0]}")
        return _Guarded(engine, self._in_a_line)

    @contextmanager
    def _in_a_line(self) -> Generator[None]:
        try:
            yield
        except KernelmillError:
            raise
        except Exception as error:
            said = f"{type(error).__name__}: {first_line(error)} {place_of(error)}"
            raise InputError(f"rollout.engine: {self._name} raised {said}") from error


class _Guarded:
    """An engine whose answers come through a guard; all else is its own."""

    def __init__(self, engine: Engine, guard: Callable[[], AbstractContextManager[None]]) -> None:
        self._engine, self._guard = engine, guard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @property
    def context_tokens(self) -> int:
        return self._engine.context_tokens

    @property
    def cohort_size(self) -> int:
        return self._engine.cohort_size

    async def generate(
        self, requests: Sequence[GenerationRequest], sampling: SamplingConfig
    ) -> AsyncIterator[tuple[int, Generation]]:
        answers = self._engine.generate(requests, sampling).__aiter__()
        while True:
            with self._guard():
                try:
                    answer = await anext(answers)
                except StopAsyncIteration:
                    return
            yield answer

    async def close(self) -> None:
        await self._engine.close()


def kind_of(config: RolloutConfig) -> EngineKind:
    """Return the configured engine. Raises InputError if there is none of this name."""
    found = ENGINE.load(config.engine)
    return found if isinstance(found, EngineKind) else OwnEngine(found, config.engine)
