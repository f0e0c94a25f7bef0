"""Extensions that nvcc builds in seconds: with a small stand-in for PyTorch's headers, and without pybind11.

PyTorch's headers take most of the time of a build, those of C++'s library most of the rest. `slim_headers` declares
the part of PyTorch's that most extensions use; it is defined in `slim_support.cpp`, which is compiled once.
What needs more does not compile with it, and is built with PyTorch's headers.
"""

import re
from dataclasses import dataclass
from pathlib import Path

SLIM_HEADERS = Path(__file__).parent / "slim_headers"
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INCLUDE = re.compile(
    r"^\s*#\s*include\s*<(?:torch/extension\.h|torch/types\.h|cuda\.h|cuda_runtime\.h)>\s*$", re.MULTILINE
)
_DECLARATION = re.compile(r"((?:torch|at)::Tensor|void)\s+(\w+)\s*\(([^()=]*)\)", re.DOTALL)
_STD = re.compile(r"\bstd\b|#\s*include")
_KINDS = {
    "tensor": re.compile(r"(?:const\s+)?(?:torch|at)::Tensor(?:\s*&\s*|\s+|$)\w*"),
    "integer": re.compile(r"(?:const\s+)?(?:int|int32_t|int64_t|long|long\s+long)(?:\s+\w+)?"),
    "number": re.compile(r"(?:const\s+)?(?:float|double)(?:\s+\w+)?"),
    "boolean": re.compile(r"(?:const\s+)?bool(?:\s+\w+)?"),
}
_BEYOND = re.compile(r"\bc10::|\bat::cuda|\bAT_DISPATCH(?!_FLOATING_TYPES\s*\()|\bPYBIND11_MODULE\b|\bTORCH_LIBRARY")
"""Names that need PyTorch's own headers: trying without would be in vain."""


@dataclass(frozen=True)
class Signature:
    """A function that Python may call."""

    name: str
    returns: bool
    """Returns a tensor; False: nothing."""
    arguments: tuple[str, ...]
    """`tensor`, `integer`, `number` or `boolean` each."""


def is_beyond(text: str) -> bool:
    """True if a source certainly needs PyTorch's own headers."""
    return _BEYOND.search(text) is not None


def needs_std(text: str) -> bool:
    """True if a source names C++'s library, or includes more than PyTorch and CUDA."""
    return _STD.search(_INCLUDE.sub("", _COMMENT.sub(" ", text))) is not None


def signatures_of(declarations: str, functions: tuple[str, ...]) -> list[Signature] | None:
    """Return the functions to call from Python; None if the C++ source is anything but plain declarations of them."""
    text = _INCLUDE.sub("", _COMMENT.sub(" ", declarations))
    found: dict[str, Signature] = {}
    for statement in (part.strip() for part in text.split(";")):
        if not statement:
            continue
        match = _DECLARATION.fullmatch(statement)
        kinds = None if match is None else _kinds(match[3])
        if match is None or kinds is None:
            return None
        found[match[2]] = Signature(match[2], match[1] != "void", kinds)
    return [found[name] for name in functions] if functions and all(name in found for name in functions) else None


def _kinds(parameters: str) -> tuple[str, ...] | None:
    kinds: list[str] = []
    for parameter in (part.strip() for part in parameters.split(",")) if parameters.strip() else ():
        kind = next((name for name, pattern in _KINDS.items() if pattern.fullmatch(parameter)), None)
        if kind is None:
            return None
        kinds.append(kind)
    return tuple(kinds)


def module_text(name: str, signatures: list[Signature]) -> str:
    """Return what makes a Python module of a CUDA source: to be put behind it."""
    lines = ["", "#include <slim_module.h>"]
    for signature in signatures:
        values = ", ".join(f"slim::{kind}(given[{place}])" for place, kind in enumerate(signature.arguments))
        call = f"{signature.name}({values})"
        done = f"return slim::python({call});" if signature.returns else f"{call}; return slim::none();"
        lines += [
            f"static PyObject* slim_call_{signature.name}(PyObject* const* given) {{ {done} }}",
            f"static PyObject* slim_{signature.name}(PyObject*, PyObject* const* given, long count) {{",
            f"    return slim::called(slim_call_{signature.name}, given, count, {len(signature.arguments)});",
            "}",
        ]
    entries = [f'{{"{signature.name}", slim_{signature.name}}}' for signature in signatures]
    return "\n".join(
        [
            *lines,
            f"static const slim::Method slim_methods[] = {{{', '.join(entries)}}};",
            f'extern "C" PyObject* PyInit_{name}() {{ return slim::module("{name}", slim_methods, {len(entries)}); }}',
            "",
        ]
    )
