"""Builds without PyTorch's headers (`kernels_eval.compile.slim`), and which errors of theirs are final."""

import re
import subprocess
import sysconfig
import tempfile
import warnings
from pathlib import Path

from kernels_eval.compile.extension import (
    IMPLICIT,
    LANGUAGE,
    LOGGED,
    Extension,
    compile_error,
    error_lines,
    nvcc_path,
    run,
    safe_flags,
)
from kernels_eval.compile.slim import SLIM_HEADERS, Signature, is_beyond, module_text, needs_std, signatures_of
from kernels_eval.sandbox.candidate_source import CandidateError

_SUPPORT = Path(__file__).parent / "slim_support.cpp"
_OBJECT, _STUB = "slim_support.o", "libtorch_cpu.so"
_UNDEFINED = re.compile(r'identifier "(\w+)" is undefined')
_OF_HEADERS = re.compile(
    r"\b(?:torch|at|c10|std|cub|thrust|slim|Tensor|IntArrayRef|template|source file|class or namespace)\b"
)
"""Errors that PyTorch's headers may mend."""


_PREPARED: dict[str, bytes] = {}
"""Files that every extension is linked with, kept in memory: a build may read nothing of what is the judge's."""


def prepare_slim_builds() -> None:
    """Compile what every extension is linked with: for this process and those that it forks.

    Without nvcc nothing is done. If the compiler fails a warning says so, and each build reads PyTorch's headers.
    """
    try:
        nvcc = nvcc_path()
    except CandidateError:
        return
    python = f"-I{sysconfig.get_paths()['include']}"
    flags = ("-O2", "-w", "-Xcompiler", "-fPIC,-fvisibility=hidden", *LANGUAGE, f"-I{SLIM_HEADERS}", python)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ran = run([nvcc, "-c", *flags, str(_SUPPORT), "-o", _OBJECT], folder)
        if ran.returncode == 0:
            # Named in each library, and already there when it is loaded: its 400 MB of symbols are not read to link.
            (folder / "empty.cpp").write_text("")
            ran = run(["g++", "-shared", f"-Wl,-soname,{_STUB}", "empty.cpp", "-o", _STUB], folder)
        if ran.returncode:
            warnings.warn(f"extensions take a minute each, with PyTorch's headers: {ran.stderr[-300:]}", stacklevel=2)
            return
        _PREPARED.update({name: (folder / name).read_bytes() for name in (_OBJECT, _STUB)})


def build_slim_library(extension: Extension, folder: Path, targets: list[str]) -> tuple[Path, str] | None:
    """Build the extension without PyTorch's headers; returns the library and the log, None if it needs them.

    Raises CandidateError if it would not compile with them either.
    """
    signatures = slim_signatures(extension)
    if signatures is None or not _PREPARED:
        return None
    place = _place(folder)
    for name, content in _PREPARED.items():
        (place / name).write_bytes(content)
    library = folder / f"{extension.name}.so"
    architectures = [target.partition(":")[2] for target in targets if target.startswith("cuda:")]
    flags = [
        *("-shared", "-Xcompiler", "-fPIC", "-cudart", "shared"),
        *(f"-gencode=arch=compute_{name},code=sm_{name}" for name in architectures),
        *("-Xlinker", "--no-as-needed", f"-L{place}", "-ltorch_cpu"),
    ]
    text = extension.cuda_text + module_text(extension.name, signatures)
    log = _compiled(extension, text, folder, [*flags, str(place / _OBJECT), "-o", str(library)])
    return None if log is None else (library, log)


def compile_slim_device_code(extension: Extension, folder: Path, flags: list[str]) -> str | None:
    """Compile with flags of nvcc; returns the log, None if the source needs PyTorch's headers. Raises likewise."""
    if slim_signatures(extension) is None:
        return None
    return _compiled(extension, extension.cuda_text, folder, flags)


def slim_signatures(extension: Extension) -> list[Signature] | None:
    """Return the functions to call from Python; None where only PyTorch's own way of building is certain to do."""
    text = "\n".join((*extension.cpp_sources, *extension.cuda_sources))
    given = (*extension.cpp_flags, *extension.link_flags, *extension.options)
    flags = extension.cuda_flags
    if given or is_beyond(text) or safe_flags(flags) != list(flags) or not extension.name.isidentifier():
        return None
    return signatures_of("\n".join(extension.cpp_sources), extension.functions)


def _compiled(extension: Extension, text: str, folder: Path, flags: list[str]) -> str | None:
    """Compile with as few headers as do, first without those of the C++ library."""
    source = _place(folder) / "cuda.cu"  # errors name it as those of load_inline do
    source.write_text(text)
    written = "\n".join(extension.cuda_sources)
    errors = ""
    for names in (["SLIM_STD"],) if needs_std(written) else ([], ["SLIM_STD"]):
        given = [*LOGGED, *LANGUAGE, f"-I{SLIM_HEADERS}", *(f"-D{name}" for name in names)]
        ran = run([nvcc_path(), *given, *safe_flags(extension.cuda_flags), str(source), *flags], folder)
        if ran.returncode == 0:
            return ran.stderr + ran.stdout
        errors = ran.stderr or ran.stdout
    if is_final(errors, written):
        raise compile_error(errors, source.name, len(IMPLICIT))
    return None


def _place(folder: Path) -> Path:
    place = folder / "slim"
    place.mkdir(exist_ok=True)
    return place


def is_final(errors: str, source: str) -> bool:
    """True if errors of a build without PyTorch's headers would stay with them: nothing that they declare is missed."""
    messages = [message for _, _, message in error_lines(errors)]
    if not messages:
        return "ptxas" in errors and "error" in errors
    if "using namespace" in source or any(_OF_HEADERS.search(message) for message in messages):
        return False
    missed = sorted({name for message in messages for name in _UNDEFINED.findall(message)})
    return not missed or not _is_macro_of_pytorch(missed)


def _is_macro_of_pytorch(names: list[str]) -> bool:
    import torch

    pattern = rf"^\s*#\s*define\s+({'|'.join(names)})\b"
    headers = Path(torch.__file__).parent / "include"
    return subprocess.run(["grep", "-rqE", pattern, str(headers)], check=False).returncode == 0
