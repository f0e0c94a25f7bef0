"""CPU worker: one trial: shares the inputs, starts the traced program, and checks its results."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from kernels_eval.correctness.outputs import Expected, ReferenceFailedError
from kernels_eval.cost.launch import Launch
from kernels_eval.cpu.output_checks import check_trace, check_values
from kernels_eval.cpu.session import Session
from kernels_eval.errors import InfrastructureError
from kernels_eval.sandbox.child import CandidateFailedError, out_of_turn
from kernels_eval.trace.equivalence import fingerprint
from kernels_eval.trace.schema import TraceAnswer

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Traced:
    """Program of one trial."""

    trace: TraceAnswer
    fingerprint: str


def start(session: Session, inputs: list[Any]) -> Traced:
    """Share a trial's inputs with the interpreter process, and start the program that host code traced for them."""
    session.put(inputs)
    trace, raw, payload = session.traced()
    session.execute(raw, payload, [output["view"] for output in raw["outputs"] if output.get("view") is not None])
    return Traced(trace, fingerprint(raw, payload))


def finish(session: Session, trace: TraceAnswer, expected: Expected, strict: bool, errors: "Errors") -> list[Launch]:
    """Wait for a trial's results; returns its launches. Raises CandidateFailedError if anything is wrong."""
    check_trace(trace, expected)
    answer, content = session.executed(bytes_of(expected))
    errors.add(*check_values(trace, answer, content, expected, session.inputs, session.changed_inputs(), strict))
    return [*session.before_reads, *answer.launches]


def sensible(look: Callable[[], _Result]) -> _Result:
    """Analyse programs that are not run. Nothing else has checked them, and hostile ones may name anything."""
    try:
        return look()
    except (CandidateFailedError, InfrastructureError, ReferenceFailedError):
        raise
    except Exception as error:
        raise out_of_turn("a program makes no sense") from error


def bytes_of(expected: Expected) -> int:
    """Return the size in bytes of the expected outputs."""
    return sum(tensor.numel() * tensor.element_size() for tensor in expected.native)


@dataclass
class Errors:
    """Largest errors of all trials."""

    absolute: float = 0.0
    relative: float = 0.0

    def add(self, absolute: float, relative: float) -> None:
        """Include the errors of one trial."""
        self.absolute, self.relative = max(self.absolute, absolute), max(self.relative, relative)
