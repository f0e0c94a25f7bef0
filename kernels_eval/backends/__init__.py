"""Back ends: the languages that kernels are written in, one module each, found by its name.

A module `kernels_eval/backends/NAME.py` that defines `BACKEND`, an instance of `Backend`, is the back end `NAME`;
there is no other registry. This package imports light, in the caller's process too: a back end's module is imported
when it is first used, and must not import torch or triton at its top.
"""

import contextlib
import importlib
import os
import pkgutil
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Generator
from functools import cache
from pathlib import Path
from typing import Any

from kernels_eval.errors import InputError
from kernels_eval.sandbox.candidate_source import CandidateError
from kernels_eval.sandbox.messages import ChannelClosedError, receive_frame, send_frame


class Backend(ABC):
    """A language of kernels. Each method names the process that calls it."""

    interprets: bool = False
    """Judged without a GPU too, in Triton's interpreter."""
    builds: bool = False
    """Has to be built by a program before it can run: `build` is called in a one-shot process."""

    @abstractmethod
    def own_kernels(self, source: str) -> frozenset[str]:
        """Return the names of the kernels that a source defines, as a profiler shows them. In the worker."""

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Build what the source asks for, in a one-shot process. Raises CandidateError if it does not compile.

        Request: `source`, `arguments` (of the constructor), `targets` (`cuda:90`), `folder` (for the files made),
        `runs` (False: there is no GPU to run on, hence compile only). Returns JSON: `resources` (fields of Resources)
        and `libraries` (for `install`, by digest). Only for a back end that `builds`.
        """
        raise NotImplementedError

    def install(self, build: dict[str, Any]) -> None:
        """Prepare for loading the source, given the outcome of `build`. In the candidate's process."""
        return

    @contextlib.contextmanager
    def suppressed(self) -> Generator[None]:
        """Disable the candidate's kernels, to see whether the result depends on them. In the candidate's process."""
        yield

    @property
    def can_suppress(self) -> bool:
        """True where `suppressed` has an effect."""
        return False

    def resources(self, module: Any) -> list[dict[str, Any]]:
        """Return registers, shared memory and spills of compiled kernels (fields of Resources), after a call.

        In the candidate's process.
        """
        return []


@cache
def backend_names() -> tuple[str, ...]:
    """Return the names of all back ends."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


@cache
def backend_named(name: str) -> Backend:
    """Return a back end. Raises InputError if there is none of that name."""
    if name not in backend_names():
        raise InputError(f"backend: expected one of {', '.join(backend_names())}, found {name!r}")
    backend: Backend = importlib.import_module(f"{__name__}.{name}").BACKEND
    return backend


def build_main(channel: socket.socket, memory_descriptor: int) -> None:
    """Build one candidate and end: one request `backend` and `Backend.build`'s, one answer `built` or `failed`.

    Runs in a one-shot process, for `kernels_eval.compile.one_shot.Builder`.
    """
    channel.settimeout(None)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}"
    try:
        request, _ = receive_frame(channel)
        outcome = backend_named(request["backend"]).build(request)
        send_frame(channel, {"kind": "built", **outcome})
    except CandidateError as failed:
        send_frame(channel, failed.header)
    except ChannelClosedError:
        return
