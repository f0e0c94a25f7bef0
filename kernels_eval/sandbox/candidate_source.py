"""Candidate's source: loads it in the candidate's process, and describes its errors by the candidate's own lines.

Runs in the tracing process (kernels_eval.tracing.process), in the candidate's process on a GPU
(kernels_eval.gpu.candidate.process), and in the one-shot process that builds (kernels_eval.backends).
"""

import linecache
import sys
import traceback
import types
from typing import Any

from kernels_eval.error_categories import ErrorCategory
from kernels_eval.sandbox.guarded_names import guarded_builtins
from kernels_eval.sandbox.source_lines import lines_of

FILE_NAME = "kernel.py"
"""Name of the candidate's source in tracebacks."""
_MAX_MESSAGE = 1200
_MAX_LINE = 500
_MAX_FRAMES = 4


class CandidateError(Exception):
    """The candidate failed; `header` is the message to the judge (`FailedAnswer`)."""

    def __init__(self, status: str, category: str, message: str) -> None:
        super().__init__(message)
        self.header = {"kind": "failed", "status": status, "category": category, "message": message[:_MAX_MESSAGE]}


def load_source(source: str, **names: Any) -> types.ModuleType:
    """Execute a candidate's source as a module whose source lines can be found: Triton reads them.

    `names`: global names that it finds.
    """
    module = types.ModuleType("candidate")
    vars(module).update(names, __builtins__=guarded_builtins())
    module.__file__ = FILE_NAME
    sys.modules["candidate"] = module
    linecache.cache[FILE_NAME] = (len(source), None, lines_of(source), FILE_NAME)
    try:
        code = compile(source, FILE_NAME, "exec")
    except SyntaxError as error:
        text = (error.text or "").strip()
        raise CandidateError(
            "compile_error",
            ErrorCategory.SYNTAX_ERROR,
            f"{type(error).__name__}: {error.msg} (line {error.lineno}: {text})",
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise CandidateError("compile_error", ErrorCategory.SYNTAX_ERROR, f"{type(error).__name__}: {error}") from error
    try:
        exec(code, module.__dict__)
    except CandidateError:  # of what its file calls
        raise
    except ImportError as error:
        raise CandidateError("compile_error", ErrorCategory.IMPORT_ERROR, describe(error)) from error
    except BaseException as error:
        raise CandidateError("compile_error", ErrorCategory.LOAD_ERROR, describe(error)) from error
    return module


def line_of_candidate() -> int:
    """Return the line of the candidate's source that has called what calls this, or 0 if it is unknown."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    while frame is not None:
        if frame.f_code.co_filename == FILE_NAME:
            return frame.f_lineno
        frame = frame.f_back
    return 0


def _text_of(error: BaseException) -> str:
    """Return the first line of an exception's message, whose class may be the candidate's own and fail to give it."""
    try:
        return str(error).strip().split("\n")[0][:_MAX_LINE]
    except BaseException as failed:  # noqa: BLE001 (whatever its __str__ raises)
        return f"its message cannot be had: __str__ raised {type(failed).__name__}"


def describe(error: BaseException) -> str:
    """Return an exception's type, message and the candidate's own lines on its way, innermost first."""
    places = [
        f"line {frame.lineno}: {(frame.line or '').strip()}"
        for frame in reversed(traceback.extract_tb(error.__traceback__))
        if frame.filename == FILE_NAME
    ]
    text = f"{type(error).__name__}: {_text_of(error)}"
    if not places:
        return text
    outer = "".join(f"; called from {place}" for place in places[1:_MAX_FRAMES])
    return f"{text} ({places[0]}{outer})"
