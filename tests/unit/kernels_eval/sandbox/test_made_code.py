"""A process with the hook executes no text that reaches into other code; what Python's library makes of classes runs."""

import subprocess
import sys

import pytest

ALLOWED = {
    "a data class": "import dataclasses; dataclasses.make_dataclass('A', ['a'])(1)",
    "a named tuple": "import collections; collections.namedtuple('A', 'a')(1)",
    "fields with names of functions": "from dataclasses import make_dataclass as m; m('A', ['open', 'vars'])(1, 2).open",
    "such fields that are frozen": "import dataclasses; dataclasses.make_dataclass('A', ['compile'], frozen=True)(1)",
    "a package with texts of its own": "import scipy.special; from scipy.linalg import hadamard",
    "a module of the library": "import colorsys",
    "an annotation": "import typing; f = lambda: 0; f.__annotations__ = {'a': 'int'}; typing.get_type_hints(f)",
}
REFUSED = {
    "an import of the judge": "import kernels_eval.verdict",
    "a text that imports": "import timeit; timeit.timeit('import math', number=1)",
    "a text with getattr": "import timeit; timeit.timeit('getattr(0, str())', number=1)",
    "a text with a function as a module's": "import timeit; timeit.timeit('f.builtins.getattr', number=1)",
    "a text executed by another module during an import": (
        "import functools, timeit, scipy._lib._util as u\n"
        "u._lazywhere = u.rng_integers = u.check_random_state = u._rename_parameter = u._asarray_validated = "
        "u.float_factorial = u._RichResult = u._transition_to_rng = functools.partial(timeit.timeit, 'import math')\n"
        "import scipy.stats"
    ),
    "a function within a text": "import timeit; timeit.timeit('def f(): import math', number=1)",
    "a name of another code's object": "import timeit; timeit.timeit('f.f_globals', number=1)",
    "a pickle that names a function": "import _pickle; _pickle.loads(b'cmath\\nsin\\n.')",
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
