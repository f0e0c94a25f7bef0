"""A process with the hook executes no text that reaches into other code; what Python's library makes of classes runs."""

import re
import subprocess
import sys

import pytest

ALLOWED = {
    "a data class": "import dataclasses; dataclasses.make_dataclass('A', ['a'])(1)",
    "a named tuple": "import collections; collections.namedtuple('A', 'a')(1)",
    "a data class with a field called open": "import dataclasses; dataclasses.make_dataclass('A', ['open'], frozen=True)",
    "a module of the library": "import colorsys",
    "a text of SciPy": "exec('from numpy.fft import *', {})",
    "a function that stands for another": "import functools; functools.wraps(lambda: 0)(lambda: 1)",
    "an annotation": "import typing; f = lambda: 0; f.__annotations__ = {'a': 'int'}; typing.get_type_hints(f)",
}
REFUSED = {
    "an import of the judge": "import kernels_eval.verdict",
    "a text that imports": "import timeit; timeit.timeit('import math', number=1)",
    "a text with getattr": "import timeit; timeit.timeit('getattr(0, str())', number=1)",
    "a function within a text": "import timeit; timeit.timeit('def f(): import math', number=1)",
    "a name of another code's object": "import timeit; timeit.timeit('f.f_globals', number=1)",
    "a pickle that names a function": "import _pickle; _pickle.loads(b'cmath\\nsin\\n.')",
    "a pattern in a text": "import timeit; timeit.timeit('match 0:\\n case object(real=a): 0', number=1)",
    "a name in a pair": "import timeit; timeit.timeit('a = (1, (2, \"__globals__\"))', number=1)",
    "a function of compiled code": (
        "import codeop, functools, types; "
        "functools.partial(types.FunctionType, codeop.compile_command('import math'), {})()"
    ),
    "a function that gets other code": (
        "import codeop; f = lambda: 0; object.__setattr__(f, '__code__', codeop.compile_command('import math'))"
    ),
    "code with other bytes": "(lambda: 0).__code__.replace(co_code=b'')",
    "a loader of its own": (
        "import codeop, importlib.machinery, types\n"
        "class Loader(importlib.machinery.SourceFileLoader):\n"
        "    def get_code(self, name): return codeop.compile_command('import math')\n"
        "Loader('a', 'a.py').exec_module(types.ModuleType('a'))"
    ),
    "a loader whose class is changed": (
        "import codeop, importlib.machinery as m, types\n"
        "m.SourceFileLoader.get_code = lambda self, name: codeop.compile_command('import math')\n"
        "m.SourceFileLoader('a', 'a.py').exec_module(types.ModuleType('a'))"
    ),
    "memory at an address": "import ctypes; ctypes.c_ubyte.from_address(8)",
    "a function of the C library": "import ctypes; ctypes.CDLL(None)",
    "an import of cffi": "import cffi",
    "code as bytes": "import marshal; marshal.loads(marshal.dumps((lambda: 0).__code__))",
}


def run(text: str) -> "subprocess.CompletedProcess[str]":
    program = f"from kernels_eval.sandbox.made_code import guard_made_code\nguard_made_code()\n{text}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("text", ALLOWED.values(), ids=list(ALLOWED))
def test_what_no_candidate_is_refused_for(text: str) -> None:
    assert run(text).stderr == ""


@pytest.mark.parametrize("text", REFUSED.values(), ids=list(REFUSED))
def test_code_that_a_file_does_not_show_is_refused(text: str) -> None:
    assert "MadeCodeError" in run(text).stderr


@pytest.mark.parametrize(
    "leaves",
    ["timeit.timeit('0', globals=names, number=1)", "eval('0', names)", "exec('0', names)"],
)
def test_a_text_leaves_no_function_that_reads_any_name(leaves: str) -> None:
    reads = "names['__builtins__']['getattr'](run, '__globals__')"
    text = f"import timeit\nnames = {{}}\ndef run(): 0\n{leaves}\n{reads}"
    assert "AttributeError: __globals__: reaches into other code" in run(text).stderr


CANDIDATES = {
    "the module by its name": "import ctypes\nctypes.memmove",
    "the module under another name": "found[0].memmove",
    "a type of it": "found[1].from_address(8)",
    "a type of it, called by another function": "list(map(found[1].from_address, [8]))",
}
LOAD = """
import ctypes, torch
from kernels_eval.sandbox.candidate_source import load_source
from kernels_eval.sandbox.made_code import guard_made_code
found = [ctypes, ctypes.c_ubyte]
guard_made_code()
load_source(SOURCE, found=found)
"""


def load(source: str) -> str:
    program = LOAD.replace("SOURCE", repr(source))
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False).stderr


@pytest.mark.parametrize("source", CANDIDATES.values(), ids=list(CANDIDATES))
def test_a_candidates_own_code_reaches_no_memory_by_its_address(source: str) -> None:
    assert re.search(r"MadeCodeError: ctypes\.\w+: reaches memory by its address", load(source))


@pytest.mark.parametrize("package", ["scipy.linalg", "numpy.ctypeslib", "torch.utils.cpp_extension", "uuid", "pandas"])
def test_a_package_that_uses_ctypes_is_imported(package: str) -> None:
    assert load(f"import {package}") == ""


def test_a_text_without_a_namespace_has_the_callers_names() -> None:
    assert run("def f(own): assert eval('own') == 3\nf(3)").stderr == ""
