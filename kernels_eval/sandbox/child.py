"""Judge's side of the session with one sandboxed child: sends frames, validates answers, explains a missing answer."""

import contextlib
import signal
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.errors import InfrastructureError
from kernels_eval.sandbox.fork_server import Ending, ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import (
    ChannelClosedError,
    FailedAnswer,
    MalformedFrameError,
    has_news,
    receive_frame,
    send_frame,
)
from kernels_eval.verdict import Resources, Status, Verdict

_SIZES = frozenset(
    {
        "string_too_long",
        "too_long",
        "less_than_equal",
        "greater_than_equal",
        "string_pattern_mismatch",
        "string_unicode",
    }
)
"""Pydantic's names of errors in the size or the alphabet of a value of the right type."""
_LONGEST_PLACE = 200


class CandidateFailedError(Exception):
    """The candidate failed; holds the verdict on it."""

    def __init__(self, status: Status, category: str, message: str, is_certain: bool = False) -> None:
        """`is_certain`: on other inputs, or in another order of programs, it would have failed in the same way."""
        super().__init__(message)
        self.status = status
        self.category = category
        self.message = message
        self.is_certain = is_certain

    def verdict(self, compiled: bool, resources: tuple[Resources, ...] = ()) -> Verdict:
        """Return the verdict on the candidate. `compiled`: it had compiled before it failed."""
        return Verdict(
            status=self.status,
            compiled=compiled and self.status is not Status.COMPILE_ERROR,
            rejection_reason=self.category if self.status is Status.REJECTED else None,
            error_category=self.category,
            error_message=self.message,
            resources=resources,
        )


class Child:
    """Frames to and from one confined child. A context manager: leaving it kills the child."""

    def __init__(self, fork_server: ForkServer, limits: Limits, memory: int | None, answers: TypeAdapter[Any]) -> None:
        self._fork_server = fork_server
        self._limits = limits
        self._answers = answers
        self._ending: Ending | None = None
        """How it ended, once that was asked: the fork server tells it once."""
        self._job: int | None = None
        """Its number, once it was released."""
        self._wait_s: float | None = None
        self._channel = fork_server.start(memory, limits)

    def __enter__(self) -> "Child":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the child without waiting until it has ended."""
        with contextlib.suppress(InfrastructureError):  # shows when the next one is started
            self.release()

    def release(self) -> None:
        """Have the child ended; `wait_until_ended` waits for it."""
        self._channel.close()
        if self._ending is None:
            self._job = self._fork_server.release()

    def wait_until_ended(self) -> None:
        """Wait until a child that was released has ended, with all that it started. Others may have started since."""
        if self._ending is None:
            if self._job is None:
                raise InfrastructureError("the end of a process is waited for that nobody has asked to end")
            self._ending = self._fork_server.ending(self._job)

    def limit_wait(self, seconds: float) -> None:
        """Fail the child with `timeout` if one of its next answers takes longer than this."""
        self._wait_s = seconds
        self._channel.settimeout(seconds)

    def has_news(self, wait_s: float = 0.0) -> bool:
        """True if a message has arrived or the child has ended, after waiting for so long at most."""
        return has_news(self._channel, wait_s)

    def send(self, header: dict[str, Any], payload: list[Any] | None = None) -> None:
        """Send one message. Says nothing of a child that has ended: `receive` does, after all that it had answered.

        Whether a child ends before or after it gets a request is a matter of microseconds. The verdict on a candidate
        follows from the order of its answers alone.
        """
        try:
            with contextlib.suppress(ChannelClosedError):
                send_frame(self._channel, header, payload or [])
        except TimeoutError as error:
            raise self._explain() from error

    def receive(self, max_payload: int) -> tuple[Any, dict[str, Any], bytearray]:
        """Wait for one answer; returns it checked, raw, and its payload. Raises CandidateFailedError like `check`."""
        header, payload = self.receive_unchecked(max_payload)
        return self.check(header), header, payload

    def receive_unchecked(self, max_payload: int) -> tuple[dict[str, Any], bytearray]:
        """Wait for one answer; returns it raw. Raises CandidateFailedError if there is none."""
        try:
            return receive_frame(self._channel, max_payload)
        except (ChannelClosedError, TimeoutError) as error:
            raise self._explain(timed_out=isinstance(error, TimeoutError)) from error
        except MalformedFrameError as error:
            raise out_of_turn("the process sent something else than its results") from error

    def check(self, header: dict[str, Any]) -> Any:
        """Validate an answer. Raises CandidateFailedError if it reports a failure or does not fit the schema."""
        try:
            answer = self._answers.validate_python(header)
        except ValidationError as error:
            raise _misfit(error) from error
        if isinstance(answer, FailedAnswer):
            raise _failure(answer)
        return answer

    def _explain(self, timed_out: bool = False) -> CandidateFailedError:
        """Return the reason for a missing answer. `timed_out`: the wait for it expired."""
        ending = self._ending = self._ending or self._fork_server.stop()
        if timed_out and self._wait_s is not None:
            return CandidateFailedError(Status.TIMEOUT, ErrorCategory.TIMEOUT, f"ran longer than {self._wait_s:g} s")
        if ending.cause == "timeout" and ending.code == signal.SIGXCPU and self._limits.cpu_s is not None:
            message = f"took more than {self._limits.cpu_s:g} s of CPU time, where no kernel is run"
            return CandidateFailedError(Status.TIMEOUT, ErrorCategory.TIMEOUT, message)
        if (ending.cause, ending.code) == ("signal", signal.SIGPROF) and self._limits.step_cpu_s:
            message = f"took more than {self._limits.step_cpu_s:g} s of CPU time between two operators of host code"
            return CandidateFailedError(Status.TIMEOUT, ErrorCategory.TIMEOUT, message)
        ending.refuse_unprepared()
        if ending.cause == "starved":
            raise InfrastructureError("the machine is too busy: a kernel waited for a core longer than it may run")
        if ending.cause == "timeout":
            return CandidateFailedError(
                Status.TIMEOUT, ErrorCategory.TIMEOUT, f"ran longer than {self._limits.wall_s:g} s"
            )
        if ending.cause == "signal":
            name = signal.Signals(ending.code).name if ending.code in set(signal.Signals) else str(ending.code)
            return CandidateFailedError(Status.RUNTIME_ERROR, ErrorCategory.CRASHED, f"the process was ended by {name}")
        exit_code = f" (exit code {ending.code})" if ending.cause == "exit" else ""
        return CandidateFailedError(
            Status.RUNTIME_ERROR, ErrorCategory.NO_ANSWER, f"the process ended without an answer{exit_code}"
        )


def _failure(answer: FailedAnswer) -> CandidateFailedError:
    return CandidateFailedError(Status(answer.status), answer.category, answer.message)


def _misfit(error: ValidationError) -> CandidateFailedError:
    """Return the failure of an answer that does not fit its schema.

    Long names and many arguments are what honest code may have: an answer in which only sizes are wrong is no cheat.
    """
    found = error.errors(include_url=False, include_input=False, include_context=False)
    beyond = [item for item in found if item["type"] in _SIZES]
    places = {item["loc"][:-1] for item in beyond}  # the other members of a union fail at the same place
    if not all(item["loc"][:-1] in places for item in found):
        return out_of_turn("the process sent something else than its results")
    where = ".".join(str(part) for part in beyond[0]["loc"])[:_LONGEST_PLACE]
    message = f"beyond what the judge takes: {where}: {beyond[0]['msg']}"
    return CandidateFailedError(Status.RUNTIME_ERROR, ErrorCategory.BEYOND_LIMITS, message)


def out_of_turn(message: str) -> CandidateFailedError:
    """Return the failure of a process that breaks the protocol."""
    return CandidateFailedError(Status.REJECTED, ErrorCategory.MALFORMED_ANSWER, message)
