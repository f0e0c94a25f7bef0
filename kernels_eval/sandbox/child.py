"""Judge's side of the session with one sandboxed child: sends frames, validates answers, explains a missing answer."""

import contextlib
import signal
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.ipc import ChannelClosedError, MalformedFrameError, receive_frame, send_frame
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import FailedAnswer
from kernels_eval.verdict import Resources, Status, Verdict

_MOST_LAST_WORDS = 1 << 31


class CandidateFailedError(Exception):
    """The candidate is done for, and this is the verdict on it."""

    def __init__(self, status: Status, category: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.category = category
        self.message = message

    def verdict(self, compiled: bool, resources: tuple[Resources, ...] = ()) -> Verdict:
        """Return the verdict on the candidate; `compiled`: how far it had come."""
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
        self._ended = False
        self._wait_s: float | None = None
        self._channel = fork_server.start(memory, limits)

    def __enter__(self) -> "Child":
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the child without waiting until it has ended."""
        self._channel.close()
        if not self._ended:
            self._fork_server.dismiss()

    def stop(self) -> None:
        """End the child and wait until it has ended."""
        self._channel.close()
        if not self._ended:
            self._fork_server.stop()

    def limit_wait(self, seconds: float) -> None:
        """Fail the child with `timeout` if one of its next answers takes longer than this."""
        self._wait_s = seconds
        self._channel.settimeout(seconds)

    def send(self, header: dict[str, Any], payload: list[Any] | None = None) -> None:
        """Send one message; CandidateFailedError where the child is gone."""
        try:
            send_frame(self._channel, header, payload or [])
        except ChannelClosedError as error:
            raise self._last_words() or self._autopsy() from error
        except TimeoutError as error:
            raise self._autopsy() from error

    def receive(self, max_payload: int) -> tuple[Any, dict[str, Any], bytearray]:
        """Wait for one answer: checked, and as it came. CandidateFailedError: it says that it failed, or makes no sense."""
        header, payload = self.receive_unchecked(max_payload)
        return self.check(header), header, payload

    def receive_unchecked(self, max_payload: int) -> tuple[dict[str, Any], bytearray]:
        """Wait for one answer, as it comes. CandidateFailedError: there is none."""
        try:
            return receive_frame(self._channel, max_payload)
        except (ChannelClosedError, TimeoutError) as error:
            raise self._autopsy(timed_out=isinstance(error, TimeoutError)) from error
        except MalformedFrameError as error:
            raise out_of_turn("the process sent something else than its results") from error

    def check(self, header: dict[str, Any]) -> Any:
        """Return an answer as a model. CandidateFailedError: it says that it failed, or makes no sense."""
        try:
            answer = self._answers.validate_python(header)
        except ValidationError as error:
            raise out_of_turn("the process sent something else than its results") from error
        if isinstance(answer, FailedAnswer):
            raise _failure(answer)
        return answer

    def _last_words(self) -> CandidateFailedError | None:
        """Return the failure that a child told before it ended, where we were asking it more meanwhile."""
        with contextlib.suppress(ChannelClosedError, TimeoutError, MalformedFrameError, ValidationError):
            while True:
                header, _ = receive_frame(self._channel, _MOST_LAST_WORDS)
                answer = self._answers.validate_python(header)
                if isinstance(answer, FailedAnswer):
                    return _failure(answer)
        return None

    def _autopsy(self, timed_out: bool = False) -> CandidateFailedError:
        """Say why there was no answer. `timed_out`: the wait for it expired."""
        ending = self._fork_server.stop()
        self._ended = True
        if timed_out and self._wait_s is not None:
            return CandidateFailedError(Status.TIMEOUT, "timeout", f"ran longer than {self._wait_s:g} s")
        if ending.cause == "timeout" and ending.code == signal.SIGXCPU and self._limits.cpu_s is not None:
            message = f"took more than {self._limits.cpu_s:g} s of CPU time, where no kernel is run"
            return CandidateFailedError(Status.TIMEOUT, "timeout", message)
        if ending.cause == "timeout":
            return CandidateFailedError(Status.TIMEOUT, "timeout", f"ran longer than {self._limits.wall_s:g} s")
        if ending.cause == "signal":
            name = signal.Signals(ending.code).name if ending.code in set(signal.Signals) else str(ending.code)
            return CandidateFailedError(Status.RUNTIME_ERROR, "crashed", f"the process was ended by {name}")
        exit_code = f" (exit code {ending.code})" if ending.cause == "exit" else ""
        return CandidateFailedError(
            Status.RUNTIME_ERROR, "no_answer", f"the process ended without an answer{exit_code}"
        )


def _failure(answer: FailedAnswer) -> CandidateFailedError:
    return CandidateFailedError(Status(answer.status), answer.category, answer.message)


def out_of_turn(message: str) -> CandidateFailedError:
    """What a process is told that does not keep to the session."""
    return CandidateFailedError(Status.REJECTED, "malformed_answer", message)
