"""Back ends: the languages that kernels are written in, one module each, found by its name.

A module `kernels_eval/backends/NAME.py` that defines `BACKEND`, an instance of `Backend`, is the back end `NAME`;
there is no other registry. One of the user's own is named by its path (docs/doors.md). This package imports light, in
the caller's process too: a back end's module is imported when it is first used, and must not import torch or triton at
its top.
"""

import contextlib
import importlib.util
import os
import re
import socket
import sys
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kernels_eval.config import AUTO, BACKEND
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.candidate_source import CandidateError
from kernels_eval.sandbox.messages import ChannelClosedError, receive_frame, send_frame

_IMPORT = re.compile(r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import\b|import[ \t]+([\w.]+))", re.MULTILINE)
_OWN_BACKEND, _OWN_FOLDER = "KERNELS_EVAL_OWN_BACKEND", "KERNELS_EVAL_OWN_FOLDER"
NOT_RUN = ErrorCategory.NOT_RUN_WITHOUT_GPU
"""Category of a candidate whose results are not known, since there is no GPU."""


class Backend(ABC):
    """A language of kernels. Each method names the process that calls it."""

    interprets: bool = False
    """Judged without a GPU too, in Triton's interpreter."""
    builds: bool = False
    """Has to be built by a program before it can run: `build` is called in a one-shot process."""
    compiles: bool = False
    """Compiled at launch, in the candidate's process. Without a GPU, `build` compiles what host code would launch."""
    warms: bool = False
    """Compiled at launch. On a GPU `build` can compile ahead what host code would launch; `install` takes that over."""
    package: str | None = None
    """Package whose import shows that a source is in this language; None: no import does."""
    compiler: str = "nvcc"
    """Name of the compiler, the verdict's `hardware` where nothing runs."""

    def unavailable(self, device: str, targets: Sequence[str]) -> str | None:
        """Return in one sentence why this machine cannot judge such kernels; None if it can. In the caller's process.

        `device`: `cpu` or `cuda`.
        """
        if device == "cpu" and not (self.interprets or self.builds or self.compiles):
            return "kernels of this back end run on a GPU alone, and this machine has none"
        return None

    def is_built(self, on_gpu: bool) -> bool:
        """True if `build` is called before a candidate runs, or instead."""
        return self.builds or (self.compiles and not on_gpu)

    @abstractmethod
    def own_kernels(self, source: str) -> frozenset[str]:
        """Return the names of the kernels that a source defines, as a profiler shows them. In the worker.

        A name that ends in `*` stands for all names that begin so.
        """

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Build what the source asks for, in a one-shot process. Raises CandidateError if it does not compile.

        Request: `source`, `arguments` (of the constructor), `targets` (`cuda:90`), `folder` (for the files made),
        `runs` (False: there is no GPU to run on, hence compile only), `problem` (its source, for a back end that
        `compiles`). Returns JSON: `resources` (fields of Resources), `libraries` (for `install`, by digest) and `note`
        (how far the host code was followed). Only for a back end that `builds` or `compiles`.
        """
        raise NotImplementedError

    def use_folder(self, folder: str) -> None:
        """Keep the compiler's caches in a folder of this candidate alone. In the candidate's process."""
        return

    def install(self, build: dict[str, Any]) -> None:
        """Prepare for loading the source, given the outcome of `build`. In the candidate's process.

        Where kernels were compiled ahead, `cache` is the folder that `build` had.
        """
        return

    @contextlib.contextmanager
    def suppressed(self) -> Generator[None]:
        """Disable the candidate's kernels, to see whether the result depends on them. In the candidate's process."""
        yield

    @property
    def can_suppress(self) -> bool:
        """True where `suppressed` has an effect."""
        return False

    def compile_failure(self, error: BaseException) -> CandidateError | None:
        """Return the failure for an exception of the language's compiler; None for any other exception.

        In the process that runs the candidate's host code.
        """
        return None

    @contextlib.contextmanager
    def compiling(self) -> Generator[None]:
        """Report an error of the compiler as one that occurs while a source is loaded or a model is built."""
        try:
            yield
        except CandidateError as failed:
            found = None if failed.__cause__ is None else self.compile_failure(failed.__cause__)
            if found is None:
                raise
            raise found from failed.__cause__

    def configurations(self, module: Any) -> int:
        """Return how many configurations a first call may compile and time. In the candidate's process."""
        return 0

    def resources(self, module: Any) -> list[dict[str, Any]]:
        """Return registers, shared memory and spills of compiled kernels (fields of Resources), after a call.

        In the candidate's process.
        """
        return []


def backend_names() -> tuple[str, ...]:
    """Return the names of all back ends, of those that this machine cannot use too."""
    return tuple(name for name in BACKEND.names if name != AUTO)


def backend_for(source: str, device: str, targets: Sequence[str]) -> str:
    """Return the back end whose language a source is in, of those that this machine can judge; else `triton`.

    By its imports alone. One that imports what it does not use is judged by rules that its kernels do not meet.
    """
    for name in _imported(source):
        if backend_named(name).unavailable(device, targets) is None:
            return name
    return "triton"


def is_interpreted(source: str, backend: str) -> bool:
    """True if the interpreter runs a source, judged by this back end (or AUTO), on a machine without a GPU."""
    if backend != AUTO:
        return backend_named(backend).interprets
    return all(backend_named(name).interprets for name in _imported(source))


def _imported(source: str) -> Iterator[str]:
    """Yield the back ends whose package a source imports."""
    imported = {first or second for first, second in _IMPORT.findall(source)}
    for name in backend_names():
        package = backend_named(name).package
        if package is not None and any(module == package or module.startswith(f"{package}.") for module in imported):
            yield name


class LaunchCompiledBackend(Backend):
    """A language of Python functions that are compiled when host code asks for it, or first launches them.

    On a GPU that happens in the candidate's process. Without one `build` follows the host code, on inputs of the
    problem's forms and with launches suppressed, and so has compiled what it would launch.
    """

    compiles = True
    language: str
    """Name of the language in messages."""

    @abstractmethod
    def compiling_for(self, architecture: str) -> contextlib.AbstractContextManager[list[dict[str, Any]]]:
        """Compile for an architecture (`90`) and launch nothing. When left, the list has `kernel`s with Resources."""

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Follow the host code once for each target. Raises CandidateError if a kernel does not compile, or for none.

        Host code that fails in another way has not been judged: it may need a GPU.
        """
        self.use_folder(request["folder"])
        resources: list[dict[str, Any]] = []
        note: str | None = None
        for target in request["targets"]:
            kind, _, architecture = target.partition(":")
            if kind != "cuda":
                continue
            with self.compiling_for(architecture) as found:
                note = follow_host_code(self, request, architecture)
            for used in found:
                if (each := {**used, "architecture": target}) not in resources:
                    resources.append(each)
        if not resources and note is None:
            raise CandidateError(
                "compile_error", ErrorCategory.NO_KERNEL, f"forward launches no kernel of {self.language}"
            )
        if not resources:
            raise CandidateError("runtime_error", NOT_RUN, f"no kernel was compiled: {note}")
        return {"resources": resources, "libraries": {}, "note": note}


def follow_host_code(backend: Backend, request: dict[str, Any], architecture: str) -> str | None:
    """Run the host code of a request to `Backend.build` on tensors without values; returns why it did not end.

    In a one-shot process. Raises CandidateError if it does not compile.
    """
    import torch

    from kernels_eval.reference.factories import CudaOnCpu
    from kernels_eval.reference.without_values import WithoutValues, inputs_without_values
    from kernels_eval.sandbox.candidate_model import build_model
    from kernels_eval.sandbox.candidate_source import describe, load_source
    from kernels_eval.tracing.fake_cuda import install_device

    install_device((int(architecture[:-1]), int(architecture[-1])))
    try:
        inputs = inputs_without_values(request["problem"])
        with backend.compiling(), torch.no_grad(), WithoutValues(), CudaOnCpu():
            module = load_source(request["source"])
            model = build_model(module, request["arguments"], weight_seed=0)
            model(*inputs)
    except CandidateError as failed:
        if failed.header["category"] in (ErrorCategory.LOAD_ERROR, ErrorCategory.CONSTRUCTOR_ERROR):
            return str(failed)
        raise
    except Exception as error:  # the candidate's: what it would do on a GPU is not known
        not_compiled = backend.compile_failure(error)
        if not_compiled is not None:
            raise not_compiled from error
        return describe(error)
    return None


def missing_package(package: str, distribution: str) -> str | None:
    """Return the sentence on a package that is not installed, named as `pip` knows it; None if it can be imported."""
    if importlib.util.find_spec(package) is not None:
        return None
    return f"the package {distribution} is not installed: pip install {distribution}"


@cache
def backend_named(name: str) -> Backend:
    """Return a back end. Raises InputError if there is none of that name."""
    return BACKEND.load(name)


def variables_for(backend: str) -> dict[str, str]:
    """Return the environment variables by which the judge's processes find a back end that is not built in.

    Imports it here. Raises InputError if that is impossible.
    """
    if BACKEND.is_ours(backend):
        return {}
    backend_named(backend)
    return {_OWN_BACKEND: BACKEND.path_of(backend), _OWN_FOLDER: str(Path.cwd())}


def load_own_backend() -> None:
    """Import the back end that `variables_for` told of: in a zygote, as its children may read no file of the user's."""
    if (path := os.environ.get(_OWN_BACKEND)) is not None:
        sys.path.append(os.environ[_OWN_FOLDER])
        backend_named(path)


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
