"""CPU worker: runs each configuration of autotuned kernels, and finds those that autotuning would take.

On a GPU, `triton.autotune` runs every configuration on the arguments of the first call and takes the fastest: any of
them may compute the result. A candidate is graded in the configuration that each autotuner lists first. Then every
other one runs once on values of its own, at the larger size of the trials, or at the smallest one at which the
autotuner's pruning keeps it. Configurations that differ for the compiler alone (`num_warps`, `num_stages`) run once.
One run more is as a first call: another configuration is launched before on the same tensors, between the autotuner's
hooks. The fastest configuration at the full size is the one with the least estimated time there; if it is not the one
that was graded, the candidate is graded again with it.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernels_eval.config import JudgeConfig
from kernels_eval.cost.extrapolation import extend, with_full_grids
from kernels_eval.cost.launch import Launch
from kernels_eval.cpu.device_limits import limit_failure
from kernels_eval.cpu.full_size import given_bytes, launches_at_full_size
from kernels_eval.cpu.graded import Graded
from kernels_eval.cpu.largest_size import SeenRun
from kernels_eval.cpu.session import Configurations, Session
from kernels_eval.cpu.size_schedule import size_needed
from kernels_eval.cpu.trials import Errors, finish, start
from kernels_eval.cpu.ways import Way, autotuners, last_launches, pattern, tags_of
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Reference
from kernels_eval.sandbox.child import CandidateFailedError
from kernels_eval.trace.continuation import Leaf, first_break
from kernels_eval.trace.schema import KernelSource, TraceAnswer

_FIRST_TRIAL = 3001
"""Number of the first of these trials, for the seed."""
_TOO_SMALL = frozenset({ErrorCategory.OUT_OF_BOUNDS, ErrorCategory.EMPTY_GRID})
"""Failures that a size below that of a tile may cause."""
_LARGER = 4


@dataclass
class _Same:
    """Ways whose programs differ for the compiler alone."""

    way: Way
    """The one that runs."""
    ways: list[Way] = field(default_factory=list[Way])
    tried: Way | None = None
    """Way to launch before it on the same tensors, as in a first call."""


class ConfigurationRuns:
    """Runs of one candidate that was found correct in its first configurations."""

    def __init__(self, reference: Reference, seed: SecretSeed, config: JudgeConfig, seen: SeenRun | None) -> None:
        """`seen`: the run at the larger size of the trials; None: that was the full size."""
        self._reference = reference
        self._seed = seed
        self._config = config
        self._seen = seen
        self._trial = _FIRST_TRIAL
        self.kernels: list[KernelSource] = []
        """Sources of the kernels launched."""

    def all(self, open_session: Callable[[], Session], source: str, ways: Sequence[Way], first: Graded) -> None:
        """Run all ways but the first, which was graded. Raises CandidateFailedError if one is wrong."""
        for way in ways:
            way.size = self._size
        waiting: list[_Same] = []
        is_begun = False
        while waiting or not is_begun:
            try:
                with open_session() as session:
                    self._begin(session, source)
                    if not is_begun:
                        if first.has_read:
                            self._run(session, ways[0], None)
                        waiting = self._grouped(session, ways, first.counted)
                        is_begun, self.kernels = True, session.kernels
                    while waiting:
                        self._run_first(session, waiting)
                        del waiting[0]
            except CandidateFailedError as failed:
                if not waiting or not self._grow(waiting[0].way, failed.category):
                    raise

    def _grouped(self, session: Session, ways: Sequence[Way], counted: Sequence[Launch]) -> "list[_Same]":
        """Trace all ways at the full size; returns those to run, each with those that compute the same."""
        self._trace(session, ways)
        groups: dict[tuple[Leaf, ...], _Same] = {}
        for way in ways:
            groups.setdefault(pattern(way), _Same(way)).ways.append(way)
        default, *others = groups.values()
        for way in default.ways:
            self._count(session, way, counted)
        chosen = min(ways, key=lambda way: way.programs)
        before = max((way for way in ways if way is not chosen), key=lambda way: way.programs)
        return [*others, _Same(replace(chosen), tried=before)]

    def _run_first(self, session: Session, waiting: "Sequence[_Same]") -> None:
        group = waiting[0]
        if not all(self._place(session, way) for way in (group.way, group.tried) if way is not None):
            return
        if group.tried is not None and group.way.size is not None:
            group.way.size = group.tried.size and max(group.way.size, group.tried.size)
        counted = self._run(session, group.way, group.tried.configurations if group.tried else None)
        is_steady = bool(group.ways) and self._is_steady(session, group.way)
        for way in group.ways:
            way.size, way.is_steady = group.way.size, is_steady
            self._count(session, way, counted)

    def _begin(self, session: Session, source: str) -> None:
        """Load the candidate into a session."""
        session.load(source, self._reference.arguments, self._reference.weight_seed, self._reference.nesting)
        state = session.ready()
        draw = functools.partial(self._draw, self._size)
        session.set_weights(self._reference.weights_for(state, draw))

    @property
    def _size(self) -> int | None:
        return self._seen.size if self._seen else None

    def _trace(self, session: Session, ways: Sequence[Way]) -> None:
        """Trace each way at the full size. Host code that reads values must have run before."""
        for way in ways:
            session.ask(self._reference.full_forms, has_values=False, configurations=way.configurations)
        for way in ways:
            way.trace = session.traced()[0]
            way.true = launches_at_full_size(way.trace, session)

    def _place(self, session: Session, way: Way) -> bool:
        """Find the smallest size at which the autotuners keep a way's configurations; returns False if none will do."""
        while way.size is not None and not self._is_kept(session, way):
            way.size = self._larger(way.size, 2)
        return way.size is None or self._seconds(way.size) <= self._config.full_size_s

    def _grow(self, way: Way, category: str) -> bool:
        """Take a larger size after a failure that too small a size may have caused; returns False if there is none."""
        if category not in _TOO_SMALL or way.size is None:
            return False
        way.size = self._larger(way.size, _LARGER)
        return way.size is None or self._seconds(way.size) <= self._config.full_size_s

    def _run(self, session: Session, way: Way, tried: Configurations | None) -> list[Launch]:
        """Run a way on new values; returns its launches, counted. `tried`: configurations to launch before them."""
        self._trial += 1
        inputs, expected = self._reference.with_expected(self._draw(way.size), way.size, self._trial, self._seed)
        session.ask(inputs, has_values=True, configurations=way.configurations, tried=tried)
        try:
            traced = start(session, inputs)
            counted = finish(session, traced.trace, expected, self._config.policy == "strict", Errors())
        except CandidateFailedError as failed:
            name = _name(way, tried)
            raise CandidateFailedError(failed.status, failed.category, f"{failed.message} ({name})") from failed
        tags = list(tags_of(traced.trace))
        return [launch for tag, launch in zip(tags, counted, strict=False) if tag is None or not tag.is_trial]

    def _count(self, session: Session, way: Way, counted: Sequence[Launch]) -> None:
        """Extend the counts of a run to the full size, with the launches of a way that computes the same."""
        full_size = self._reference.full_size or 0
        found = last_launches(counted, way.true)
        if way.trace is None or found is None or limit_failure(way.true, self._config.targets):
            return  # autotuning skips what takes more than the device has
        if way.size is not None:
            given = given_bytes(way.trace, session, self._reference)
            found = extend(found, way.size, full_size, way.true, given)
        way.launches = with_full_grids(found, way.true)

    def _draw(self, size: int | None) -> list[Any]:
        return self._reference.draw(size, self._trial, self._seed, own=False)

    def _is_kept(self, session: Session, way: Way) -> bool:
        assert way.size is not None
        used = {number: tuned.used for number, tuned in autotuners(self._at(session, way.size, way)).items()}
        return all(used.get(number, place) == place for number, place in way.configurations.items())

    def _is_steady(self, session: Session, way: Way) -> bool:
        if way.size is None or way.trace is None:
            return way.size is None
        sizes = (max(1, way.size // 2), way.size)
        small, seen = (self._at(session, size, way) for size in sizes)
        full_size = self._reference.full_size or 0
        is_like = first_break((small, seen, way.trace), (*sizes, full_size)) is None
        return is_like and size_needed(seen, way.trace, session.kernels, way.size) is None

    def _at(self, session: Session, size: int, way: Way) -> TraceAnswer:
        session.ask(self._reference.forms(size), has_values=False, configurations=way.configurations)
        return session.traced()[0]

    def _larger(self, size: int, factor: int) -> int | None:
        """Return a larger size, None for the full one."""
        return factor * size if factor * size < (self._reference.full_size or 0) else None

    def _seconds(self, size: int | None) -> float:
        """Return the estimated time of a run."""
        if self._seen is None:
            return 0.0
        return self._seen.seconds_at(size or self._reference.full_size or 0)


def _name(way: Way, tried: Configurations | None) -> str:
    tuners = autotuners(way.trace)
    names = "; ".join(tuned.name for number, tuned in tuners.items() if tuned.used == way.configurations[number])
    return f"autotuned: {names or way.configurations}" + (", after another configuration" if tried else "")
