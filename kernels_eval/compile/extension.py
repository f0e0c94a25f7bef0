"""One PyTorch extension as `load_inline` describes it, and the commands that compile it."""

import hashlib
import json
import os
import re
import shutil
import subprocess
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.candidate_source import CandidateError

IMPLICIT = ("#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>")
"""Lines that `load_inline` puts before CUDA sources."""
LOGGED = ("-Xptxas", "-v", "-w")
LANGUAGE = ("-std=c++17", "--expt-relaxed-constexpr")
_MAX_MESSAGE = 500
_ERROR = re.compile(r"(\w[\w.]*\.(?:cu|cpp|cuh|h))\(?:?(\d+)\)?[^e]*?: (?:fatal )?error\s*:? ?(.*)")


@dataclass(frozen=True)
class Extension:
    """One extension: the arguments of `load_inline` that decide the result."""

    name: str
    cpp_sources: tuple[str, ...]
    cuda_sources: tuple[str, ...]
    functions: tuple[str, ...]
    cuda_flags: tuple[str, ...] = ()
    cpp_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    options: dict[str, bool] = field(default_factory=dict[str, bool])

    @classmethod
    def of(
        cls, name: str, cpp_sources: Any = (), cuda_sources: Any = (), functions: Any = (), *args: Any, **kwargs: Any
    ) -> "Extension":
        """Accept the arguments of `load_inline`; positional ones after `functions` are flags in its order."""
        flags = dict(
            zip(("extra_cflags", "extra_cuda_cflags", "extra_sycl_cflags", "extra_ldflags"), args, strict=False)
        )
        flags |= kwargs
        return cls(
            name=re.sub(r"\W", "_", str(name)),
            cpp_sources=_texts(cpp_sources),
            cuda_sources=_texts(cuda_sources),
            functions=_texts(functions),
            cuda_flags=_texts(flags.get("extra_cuda_cflags")),
            cpp_flags=_texts(flags.get("extra_cflags")),
            link_flags=_texts(flags.get("extra_ldflags")),
            options={
                key: bool(flags[key])
                for key in ("with_pytorch_error_handling", "no_implicit_headers")
                if flags.get(key) is not None
            },
        )

    @property
    def digest(self) -> str:
        """Digest of the content."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()[:24]

    @property
    def cuda_text(self) -> str:
        """Source file for nvcc, as `load_inline` puts it together."""
        implicit = () if self.options.get("no_implicit_headers") else IMPLICIT
        return "\n".join((*implicit, *self.cuda_sources)) + "\n"


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    return tuple(str(item) for item in value)


def run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run a compiler in a folder; returns its status and output."""
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def nvcc_path() -> str:
    """Return the path of nvcc. Raises CandidateError if there is none."""
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    if found is None:
        raise CandidateError("compile_error", ErrorCategory.NO_NVCC, "nvcc is not installed on this machine")
    return found


def safe_flags(flags: tuple[str, ...]) -> list[str]:
    """Return flags that choose optimisation or define names, without those that read or write files or run programs."""
    allowed = (
        "-O", "--use_fast_math", "-use_fast_math", "-D", "-U", "-std=", "--std=", "-lineinfo", "--maxrregcount",
        "-maxrregcount", "--expt-", "-fmad", "--fmad", "-prec", "-ftz", "--extra-device-vectorization",
    )  # fmt: skip
    return [flag for flag in flags if flag.startswith(allowed)]


def error_lines(text: str) -> list[tuple[str, int, str]]:
    """Return the errors in a compiler's output: file, line and message of each."""
    found = (_ERROR.search(line) for line in text.splitlines())
    return [(match.group(1), int(match.group(2)), match.group(3)) for match in found if match is not None]


def compile_error(text: str, file_name: str, implicit_lines: int) -> CandidateError:
    """Return the first errors, with lines counted from the start of the candidate's source."""
    found = [
        f"{name} line {number - (implicit_lines if name == file_name else 0)}: {message}"
        for name, number, message in error_lines(text)
    ]
    if not found:
        found = [line for line in text.splitlines() if "error" in line.lower()] or text.strip().splitlines()[-3:]
    return CandidateError("compile_error", ErrorCategory.NVCC_COMPILE, "; ".join(found)[:_MAX_MESSAGE])
