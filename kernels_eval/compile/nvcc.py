"""nvcc, in the one-shot process that builds: device code for named targets, or a whole PyTorch extension; and its log.

Sources are put together as `torch.utils.cpp_extension.load_inline` does. Compiling needs no GPU and no CUDA build of
PyTorch: headers that a CPU build lacks are replaced by the declarations that candidates use
(kernels_eval/compile/cuda_headers). Most sources need none of them (`kernels_eval.compile.slim`).
"""

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernels_eval.compile.slim import SLIM_HEADERS, Signature, is_beyond, module_text, signatures_of
from kernels_eval.sandbox.candidate_source import CandidateError

HEADERS = Path(__file__).parent / "cuda_headers"
_IMPLICIT = ("#include <torch/types.h>", "#include <cuda.h>", "#include <cuda_runtime.h>")
_LOGGED = ("-Xptxas", "-v", "-w")
_LANGUAGE = ("-std=c++17", "--expt-relaxed-constexpr")
_MAX_MESSAGE = 500
_ENTRY = re.compile(r"Compiling entry function '([^']+)' for 'sm_(\d+)a?'")
_SPILLS = re.compile(r"(\d+) bytes spill stores")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


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
        implicit = () if self.options.get("no_implicit_headers") else _IMPLICIT
        return "\n".join((*implicit, *self.cuda_sources)) + "\n"


def _texts(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    return tuple(str(item) for item in value)


def compile_device_code(extension: Extension, folder: Path, target: str) -> str:
    """Compile for a target such as `cuda:90`; returns the assembler's log. Raises CandidateError if that fails.

    With the small headers where they suffice, else with PyTorch's: only what these do not compile is an error.
    """
    backend, _, architecture = target.partition(":")
    if backend != "cuda":
        return ""
    source = folder / "cuda.cu"
    source.write_text(extension.cuda_text)
    flags = ["-cubin", f"-arch=sm_{architecture}", *_LOGGED, *_safe_flags(extension.cuda_flags)]
    output = ["-o", str(folder / f"sm_{architecture}.cubin")]
    if _slim_signatures(extension) is not None:
        ran = _run([_nvcc(), *flags, *_slim_flags(), str(source), *output], folder)
        if ran.returncode == 0:
            return ran.stderr + ran.stdout
    ran = _run([_nvcc(), *flags, *_torch_flags(), str(source), *output], folder)
    if ran.returncode:
        raise _compile_error(ran.stderr or ran.stdout, source.name, len(_IMPLICIT))
    return ran.stderr + ran.stdout


def _run(command: list[str], folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def build_slim_library(extension: Extension, folder: Path, targets: list[str]) -> tuple[Path, str] | None:
    """Build the extension without PyTorch's headers; returns the library and the log, None if it needs them."""
    signatures = _slim_signatures(extension)
    if signatures is None:
        return None
    import torch

    source, library = folder / "slim.cu", folder / f"{extension.name}.so"
    source.write_text(extension.cuda_text + module_text(extension.name, signatures))
    architectures = [target.partition(":")[2] for target in targets if target.startswith("cuda:")]
    ran = _run(
        [
            *(_nvcc(), "-shared", "-Xcompiler", "-fPIC", "-cudart", "shared", *_LOGGED),
            *(f"-gencode=arch=compute_{name},code=sm_{name}" for name in architectures),
            *(*_slim_flags(), *_safe_flags(extension.cuda_flags), str(source), "-o", str(library)),
            *(f"-L{Path(torch.__file__).parent / 'lib'}", "-ltorch_cpu"),
        ],
        folder,
    )
    return (library, ran.stderr + ran.stdout) if ran.returncode == 0 else None


def _slim_signatures(extension: Extension) -> list[Signature] | None:
    """Return the functions to call from Python; None where only PyTorch's own way of building is certain to do."""
    text = "\n".join((*extension.cpp_sources, *extension.cuda_sources))
    given = (*extension.cpp_flags, *extension.link_flags, *extension.options)
    flags = extension.cuda_flags
    if given or is_beyond(text) or _safe_flags(flags) != list(flags) or not extension.name.isidentifier():
        return None
    return signatures_of("\n".join(extension.cpp_sources), extension.functions)


def _slim_flags() -> list[str]:
    return [f"-I{SLIM_HEADERS}", f"-I{sysconfig.get_paths()['include']}", *_LANGUAGE]


def build_library(extension: Extension, folder: Path, targets: list[str]) -> tuple[Path, str]:
    """Build the extension; returns the library and the log. Raises CandidateError if it does not compile.

    Without PyTorch's headers where that is possible, in seconds; else as `load_inline` does, which takes a minute.
    """
    slim = build_slim_library(extension, folder, targets)
    if slim is not None:
        return slim
    torch_extensions: Any = _original_extensions()
    architectures = [target.partition(":")[2] for target in targets if target.startswith("cuda:")]
    os.environ["TORCH_CUDA_ARCH_LIST"] = ";".join(f"{name[:-1]}.{name[-1]}" for name in architectures)
    log_path = folder / "build.log"
    try:
        with _output_to(log_path):
            torch_extensions(
                name=extension.name,
                cpp_sources=list(extension.cpp_sources),
                cuda_sources=list(extension.cuda_sources) or None,
                functions=list(extension.functions) or None,
                extra_cflags=list(extension.cpp_flags),
                extra_cuda_cflags=[*extension.cuda_flags, "-Xptxas", "-v", "-w"],
                extra_ldflags=list(extension.link_flags),
                build_directory=str(folder),
                verbose=True,
                **extension.options,
            )
    except Exception as error:
        log = log_path.read_text(errors="replace") if log_path.exists() else ""
        if "error" in log or "error" in str(error):
            raise _compile_error(f"{log}\n{error}", "cuda.cu", len(_IMPLICIT)) from error
        raise CandidateError("compile_error", "nvcc_compile", f"{type(error).__name__}: {str(error)[-300:]}") from error
    library = next(iter(folder.glob(f"{extension.name}*.so")), None)
    if library is None:
        raise CandidateError("compile_error", "nvcc_compile", "the build left no library")
    return library, log_path.read_text(errors="replace")


_load_inline: list[Any] = []


def remember_load_inline() -> None:
    """Keep PyTorch's own `load_inline`, before candidates' modules are given another one."""
    import torch.utils.cpp_extension as extensions

    if not _load_inline:
        _load_inline.append(extensions.load_inline)


def _original_extensions() -> Any:
    if not _load_inline:
        remember_load_inline()
    return _load_inline[0]


@contextlib.contextmanager
def _output_to(path: Path) -> Generator[None]:
    """Send this process's standard output and error, and its children's, to a file."""
    kept = (os.dup(1), os.dup(2))
    with path.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            for descriptor, original in enumerate(kept, start=1):
                os.dup2(original, descriptor)
                os.close(original)


def parse_resources(log: str) -> list[dict[str, Any]]:
    """Read kernels, architectures, registers, shared bytes and spilled bytes from the output of `ptxas -v`."""
    found: list[dict[str, Any]] = []
    current: dict[str, Any] | None = None
    for line in log.splitlines():
        if entry := _ENTRY.search(line):
            current = {"kernel": plain_name(entry.group(1)), "architecture": f"cuda:{entry.group(2)}"}
        elif current is not None and (spilled := _SPILLS.search(line)):
            current["spills"] = int(spilled.group(1))
        elif current is not None and (used := _USED.search(line)):
            shared = _SHARED.search(line)
            current |= {"registers": int(used.group(1)), "shared_bytes": int(shared.group(1)) if shared else 0}
            if current not in found:
                found.append(current)
            current = None
    return found


def plain_name(mangled: str) -> str:
    """Return the function's own name out of an Itanium-mangled one (`_Z11relu_kernelPKfPfl`)."""
    position = 2 if mangled.startswith("_Z") else -1
    if position < 0:
        return mangled[:200]
    if mangled[position : position + 1] == "N":
        position += 1
    name = mangled
    while match := re.match(r"(\d+)", mangled[position:]):
        start = position + len(match.group(1))
        position = start + int(match.group(1))
        name = mangled[start:position]
    return name[:200]


def _nvcc() -> str:
    home = os.environ.get("CUDA_HOME", "/usr/local/cuda")
    found = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    if found is None:
        raise CandidateError("compile_error", "no_nvcc", "nvcc is not installed on this machine")
    return found


def _torch_flags() -> list[str]:
    import torch

    root = Path(torch.__file__).parent / "include"
    folders = [root, root / "torch/csrc/api/include", Path(sysconfig.get_paths()["include"])]
    if torch.version.cuda is None:
        folders.insert(0, HEADERS)
    flags = [f"-I{folder}" for folder in folders]
    return [*flags, *_LANGUAGE, "-D_GLIBCXX_USE_CXX11_ABI=1", "-DTORCH_EXTENSION_NAME=extension"]


def _safe_flags(flags: tuple[str, ...]) -> list[str]:
    """Return flags that choose optimisation or define names, without those that read or write files or run programs."""
    allowed = (
        "-O", "--use_fast_math", "-use_fast_math", "-D", "-U", "-std=", "--std=", "-lineinfo", "--maxrregcount",
        "-maxrregcount", "--expt-", "-fmad", "--fmad", "-prec", "-ftz", "--extra-device-vectorization",
    )  # fmt: skip
    return [flag for flag in flags if flag.startswith(allowed)]


def _compile_error(text: str, file_name: str, implicit_lines: int) -> Exception:
    """Return the first errors, with lines counted from the start of the candidate's source."""
    found: list[str] = []
    for line in text.splitlines():
        match = re.search(r"(\w[\w.]*\.(?:cu|cpp|cuh|h))\(?:?(\d+)\)?[^e]*?: (?:fatal )?error\s*:? ?(.*)", line)
        if match is not None:
            number = int(match.group(2)) - (implicit_lines if match.group(1) == file_name else 0)
            found.append(f"{match.group(1)} line {number}: {match.group(3)}")
    if not found:
        found = [line for line in text.splitlines() if "error" in line.lower()] or text.strip().splitlines()[-3:]
    return CandidateError("compile_error", "nvcc_compile", "; ".join(found)[:_MAX_MESSAGE])
