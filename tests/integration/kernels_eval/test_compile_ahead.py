"""Kernels compiled ahead for a GPU, in a real confined process without one, and found by the process that launches."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels_eval.backends.triton import take_over
from kernels_eval.compile.one_shot import Builder, CompileCache
from kernels_eval.pool.scratch import Scratch
from kernels_eval.pool.zygote import Zygotes
from kernels_eval.redteam.suite import FOLDER, load_cases
from kernels_eval.sandbox.fork_server import ForkServer
from kernels_eval.sandbox.limits import Limits

pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]
CASE = next(case for case in load_cases(FOLDER / "gpu") if case.path.stem == "max" and case.is_honest)
LIMITS = Limits(wall_s=60, memory_mb=8000)
LAUNCHES = """
import json, sys
from triton import knobs
from kernels_eval.backends.triton import BACKEND
from kernels_eval.redteam.case import read_case
from pathlib import Path
hits = []
knobs.compilation.listener = lambda **found: hits.append([found["metadata"]["name"], found["cache_hit"]])
case = read_case(Path(sys.argv[1]), "honest")
request = {"source": case.kernel, "problem": case.problem, "arguments": [], "targets": ["cuda:90"], "folder": sys.argv[2]}
assert BACKEND.build(request)["note"] is None
print(json.dumps(hits))
"""


@pytest.fixture(scope="module")
def warmer() -> Iterator[Builder]:
    scratch = Scratch()
    zygotes = Zygotes(scratch.path)
    made = Builder(lambda: ForkServer(zygotes.fork("ahead")[1]), CompileCache(), scratch.path / "builds")
    yield made
    made.close()
    zygotes.close()
    scratch.close()


def warmed(warmer: Builder, source: str) -> str | None:
    return warmer.warm("triton", source, [], "cuda:90", LIMITS, CASE.problem)


def test_what_was_compiled_ahead_is_not_compiled_again(warmer: Builder, tmp_path: Path) -> None:
    folder = warmed(warmer, CASE.kernel)
    assert folder is not None
    assert len(list(Path(folder).glob("triton/*/*.cubin"))) == 2
    take_over(Path(folder) / "triton", tmp_path / "triton")
    command = [sys.executable, "-c", LAUNCHES, str(CASE.path), str(tmp_path)]
    environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": "1"}
    said = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True, env=environment).stdout
    assert json.loads(said.splitlines()[-1]) == [["part", True], ["whole", True]]


ENDLESS = """
import time
forward = ModelNew.forward

def endless(self, *inputs):
    forward(self, *inputs)
    time.sleep(600)

ModelNew.forward = endless
"""


def test_what_takes_too_long_leaves_what_it_has_compiled_by_then(warmer: Builder) -> None:
    limits = Limits(wall_s=30, memory_mb=8000)
    folder = warmer.warm("triton", CASE.kernel + ENDLESS, [], "cuda:90", limits, CASE.problem)
    assert folder is not None
    assert len(list(Path(folder).glob("triton/*/*.cubin"))) == 2


def test_a_kernel_that_does_not_compile_or_says_nothing_leaves_no_folder(warmer: Builder) -> None:
    before = set(Path(str(warmed(warmer, CASE.kernel))).parent.iterdir())
    assert warmed(warmer, CASE.kernel.replace("tl.max(v, axis=0)", "tl.max(v, axis=5)")) is None
    assert warmed(warmer, "import os\nos._exit(3)\n") is None
    assert set(next(iter(before)).parent.iterdir()) == before
