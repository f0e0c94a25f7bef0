"""Runs hostile host code in the process that candidates have, below the checks that read their files and its texts.

Those refuse what calls the operating system directly. What holds where they are passed by is tested with this.
"""

import contextlib
import socket
from collections.abc import Generator

import torch
import triton  # noqa: F401 (loaded here, as in the judge, not in each process)

from kernels_eval.cpu.worker import start_fork_server
from kernels_eval.sandbox.candidate_source import CandidateError, load_source
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits
from kernels_eval.sandbox.messages import receive_frame, send_frame

LIMITS = Limits(wall_s=30.0, memory_mb=2048)


def _serve(channel: socket.socket, memory: int) -> None:
    """Load a candidate, call its model if it has one, and say how that failed."""
    channel.settimeout(None)
    try:
        module = load_source(receive_frame(channel)[0]["source"])
        module.ModelNew().forward(torch.zeros(4, 4))
        said = "it did not fail"
    except CandidateError as failed:
        said = failed.header["message"]
    except (OSError, RuntimeError) as error:
        said = f"{type(error).__name__}: {error}"
    send_frame(channel, {"said": said})


@contextlib.contextmanager
def fork_server() -> Generator[ForkServer]:
    """Start a fork server that confines its children as the judge's does."""
    server = ForkServer(start_fork_server(_serve, []))
    try:
        yield server
    finally:
        server.close()


def failure_of(server: ForkServer, source: str) -> str:
    """Run a candidate in a process of its own; returns the message of its exception."""
    channel = server.start(None, LIMITS)
    with contextlib.closing(channel):
        send_frame(channel, {"source": source})
        answer, _ = receive_frame(channel)
    server.stop()
    return answer["said"]
