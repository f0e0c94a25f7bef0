"""Files that reach past their own program are refused, and honest host code is not."""

from pathlib import Path

import pytest

from kernels_eval.cpu.reach import reached
from kernels_eval.problem import split_source

HONEST = Path(__file__).parents[3] / "redteam" / "honest"


MADE = (
    "f'{n}_l0'", "f'kern{n}'", "f'_{n}'", "f'{n}'", "f'f_{n}'", "f's{n}'", "f'sys{n}'", "'{}s'.format(n)", "'a' + n",
    "'abc%s' % n",
)  # fmt: skip
"""Names that may be any, or begin as one of another program's does."""


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import json\njson.dumps = print", "json.dumps is replaced (line 2)"),
        ("from json import JSONEncoder as E\nE.encode = print", "E.encode is replaced (line 2)"),
        ("from json import JSONEncoder as E\nsetattr(E, 'encode', print)", "setattr of E (line 2)"),
        ("import json as j\nother = [j]", "the module json as a value (line 2)"),
        ("import sys\nfor m in sys.modules.values(): pass", "sys.modules (line 2)"),
        ("import sys\nm = sys.modules.get('json')", "sys.modules (line 2)"),
        ("import sys\nm = sys.modules.get('torch.utils')", "sys.modules (line 2)"),
        ("import sys\nm = sys.modules.get", "sys.modules (line 2)"),
        ("import sys\nm = sys.modules.get('no_such_' + name)", "sys.modules (line 2)"),
        ("m = x.f_globals.get('no_such_package')", "f_globals (line 1)"),
        ("from sys import modules", "sys.modules (line 1)"),
        ("import builtins", "builtins (line 1)"),
        ("def f(x):\n    return x.__globals__", "__globals__ (line 2)"),
        ("def f(x):\n    return getattr(x, '__closure__')", "__closure__ (line 2)"),
        ("def f(x, n):\n    return getattr(x, n)", "getattr of a name that is made at run time (line 2)"),
        ("def f(x, n):\n    return getattr(self.weight, n)", "getattr of a name that is made at run time (line 2)"),
        (
            "N = 'a'\ndef f(x):\n    global N\n    N = x\n    setattr(x, N, 1)",
            "setattr of a name that is made at run time (line 5)",
        ),
        (
            "N = 'a'\nmatch x:\n    case N:\n        setattr(x, N, 1)",
            "setattr of a name that is made at run time (line 4)",
        ),
        ("N = 'a'\nfrom m import *\nsetattr(x, N, 1)", "setattr of a name that is made at run time (line 3)"),
        ("N = 'a' + b\nsetattr(x, N, 1)", "setattr of a name that is made at run time (line 2)"),
        ("def f(x, N):\n    setattr(x, N, 1)\nN = 'a'", "setattr of a name that is made at run time (line 2)"),
        ("N = '__globals__'\nsetattr(x, N, 1)", "__globals__ (line 1)"),
        *(
            (f"def f(x, n):\n    return getattr(x.y, {name})", "getattr of a name that is made at run time (line 2)")
            for name in MADE
        ),
        (
            "def f(x, m):\n    for n in ('abc', 'def'):\n        getattr(x, n)\n    n = m",
            "getattr of a name that is made at run time (line 3)",
        ),
        (
            "def f(x, m):\n    return [getattr(x, n) for n in ('abc', m)]",
            "getattr of a name that is made at run time (line 2)",
        ),
        (
            "def f(x, m):\n    return [getattr(x, f'{n}{m}') for n in ('abc', '__glo')]",
            "getattr of a name that is made at run time (line 2)",
        ),
        (
            "def f(x, n):\n    return [y for y in getattr(x, n) for n in ('abc', 'def')]",
            "getattr of a name that is made at run time (line 2)",
        ),
        (
            "def f(x, g):\n    return [g(lambda n: getattr(x, n)) for n in ('abc', 'def')]",
            "getattr of a name that is made at run time (line 2)",
        ),
        ("exec('x = 1')", "exec of a text (line 1)"),
        ("[exec][0]('x = 1')", "exec as a value (line 1)"),
        ("def f(x, eval=1):\n    return x\nlist(map(eval, ['1']))", "eval as a value (line 3)"),
        ("def f(x=lambda eval: 1):\n    return [eval]", "eval as a value (line 2)"),
        (
            "def f(eval):\n    def g():\n        global eval\n        return [eval]\n    return g()",
            "eval as a value (line 4)",
        ),
        ("g = getattr\ng(x.utils, 's' + 'ys')", "getattr as a value (line 1)"),
        ("import importlib\nf = importlib.import_module\nf('builtins')", "import_module as a value (line 2)"),
        ("from importlib import import_module\nf = import_module\nf('builtins')", "import_module as a value (line 2)"),
        ("import torch\nm = torch.sys.modules", "the module sys of another package (line 2)"),
        ("import triton.runtime.cache as c\nc.json.dumps = print", "the module json of another package (line 2)"),
        ("from torch.cuda.graphs import gc", "the module torch.cuda.graphs.gc of another package (line 1)"),
        ("import inspect as i\ni.stack()", "inspect.stack (line 2)"),
        ("from inspect import trace", "inspect.trace (line 1)"),
        ("import traceback\ntraceback.walk_stack(None)", "walk_stack (line 2)"),
        ("import string\nclass F(string.Formatter): pass", "string.Formatter (line 2)"),
        ("from importlib.machinery import SourceFileLoader", "importlib.machinery.SourceFileLoader (line 1)"),
        ("import importlib.util as u\nu.spec_from_loader", "spec_from_loader (line 2)"),
        ("import sys\nsys.meta_path.append(1)", "meta_path (line 2)"),
        ("import codeop", "codeop (line 1)"),
        ("v = x.__dict__", "__dict__ (line 1)"),
        ("type.__setattr__(T, 'stride', f)", "type.__setattr__ (line 1)"),
        ("match x:\n    case P(m):\n        pass", "a pattern that reads attributes (line 2)"),
        ("x.kernels_eval_memory", "kernels_eval (line 1)"),
        ("import ctypes as c", "ctypes (line 1)"),
        ("from _ctypes import dlopen", "_ctypes.dlopen (line 1)"),
        ("from cffi import FFI", "cffi.FFI (line 1)"),
        ("a = self.x.ctypes", "ctypes (line 1)"),
        ("import multiprocessing.sharedctypes", "multiprocessing.sharedctypes (line 1)"),
        ("class A:\n    __array_interface__ = {}", "__array_interface__ (line 2)"),
        ("import numpy as np\nnp.lib.stride_tricks", "stride_tricks (line 2)"),
        ("from triton._C import libtriton", "triton._C.libtriton (line 1)"),
        ("import triton.runtime.interpreter as i", "triton.runtime.interpreter (line 1)"),
    ],
)
def test_what_leads_past_the_file_is_found_with_its_line(source: str, found: str) -> None:
    assert reached(source) == found


@pytest.mark.parametrize(
    "source",
    [
        "import math, os, time\nx = math.sqrt(2.0)\nos.environ['A'] = 'b'\nt = time.perf_counter()",
        "import sys, logging\nlog = logging.getLogger(__name__)\nprint(sys.version_info, file=sys.stderr)",
        "import functools\n@functools.lru_cache\ndef f(n): return n",
        "import sys\nu = sys.modules.get('no_such_package.utils')\nis_traced = 'torch._dynamo' in sys.modules",
        "import re\np = re.compile('a')\nimport gc\ngc.collect()",
        "import torch\nname = 'float16'\nd = getattr(torch, name)\ntorch.backends.cuda.matmul.allow_tf32 = True",
        "class M:\n    def g(self, n):\n        return getattr(self, n), getattr(self.x, 'shape', None)",
        "N = '_expanded'\ndef f(x, y):\n    setattr(x, N, y)\n    return getattr(x, N)",
        "def f(x, i):\n    return getattr(x.rnn, f'weight_ih_l{i}'), getattr(x.rnn, 'weight_ih_l{}'.format(i))",
        "def f(x, i):\n    return [getattr(x.rnn, f'{n}_l{i}') for n in ('weight_ih', 'bias_hh')]\nn = i",
        "def f(x):\n    for n in ['conv1', 'conv2']:\n        x = getattr(x.net, n)(x)",
        "class M:\n    def __init__(self, compile=False):\n        self.compile = compile",
        "model.eval()\nmodel.modules()\ntorch.compile(model)",
        "match n:\n    case int() | None:\n        pass",
        "import importlib.util\nu = importlib.util.find_spec('apex')\nx = self.sys",
        "import inspect, string\ns = inspect.signature(f), string.digits\ny = torch.stack([x])",
        "'''A module on frames: see f_back, and exec.'''",
        "not python (",
    ],
)
def test_honest_host_code_reaches_for_nothing(source: str) -> None:
    assert reached(source) is None


def test_no_honest_case_of_the_red_team_is_refused() -> None:
    cases = sorted(HONEST.rglob("*.py"))
    assert len(cases) > 300
    sources = {path.name: split_source(path.read_text(encoding="utf-8"), path.name)[1] for path in cases}
    assert {name: found for name, source in sources.items() if (found := reached(source))} == {}
