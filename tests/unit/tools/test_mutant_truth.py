"""The truth of a mutant on a CPU: each kind of fault is found, and a kernel without one is equal. Runs real kernels."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CASE = '''"""a sum of rows

expect: correct
"""
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x.sum(1)

def get_inputs():
    return [torch.rand(5, 7)]

def get_init_inputs():
    return []

# --- candidate ---
import torch
import triton
import triton.language as tl

@triton.jit
def sums(X, O, M, N, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    tl.store(O + row, tl.sum(tl.load(X + row * N + i, mask=i < N, other=0.0)))

class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0])
        sums[(x.shape[0],)](x, out, x.shape[0], x.shape[1], BLOCK=8)
        return out
'''
CHANGES = {
    "none": ("BLOCK=8", "BLOCK=8"),
    "wider": ("BLOCK=8", "BLOCK=16"),
    "of the last row alone": ("mask=i < N", "mask=i <= N"),
    "past the end": ("x.shape[0],)]", "x.shape[0] + 1,)]"),
    "garbage": (", other=0.0", ""),
    "one cell for all": ("O + row", "O"),
    "never written": ("x.shape[0],)]", "x.shape[0] - 1,)]"),
    "signs": ("tl.sum(tl", "tl.sum(tl.abs(tl"),
    "does not compile": ("tl.sum(", "tl.summe("),
}
EXPECTED = {
    "none": "equal",
    "wider": "equal",
    "of the last row alone": "wrong: ",
    "past the end": "wrong: out of bounds",
    "garbage": "wrong: values",
    "one cell for all": "wrong: data race",
    "never written": "wrong: values on own inputs",
    "signs": "wrong: values on normal inputs",
    "does not compile": "fails: AttributeError",
}
SCRIPT = """
import json, sys
from pathlib import Path
import mutant_truth

class Pipe:
    def send(self, message):
        print(json.dumps(message), file=sys.stderr)

mutant_truth.decide_mutants(Path(sys.argv[1]), "cpu", json.loads(sys.argv[2]), Pipe())
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    path = tmp_path_factory.mktemp("case") / "case.py"
    path.write_text(CASE)
    kernel = CASE.split("# --- candidate ---\n")[1]
    sources = {name: kernel.replace(*change) for name, change in CHANGES.items()}
    sources["signs"] = sources["signs"].replace("other=0.0)", "other=0.0))")
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": f"{ROOT}:{ROOT / 'tools'}"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(path), json.dumps(sources)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    said = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("[")]
    assert said[0] == [-1, "fit"]
    return {name: outcome for name, outcome in said if name != -1}


@pytest.mark.parametrize("name", CHANGES)
def test_each_fault_is_found(outcomes: dict[str, str], name: str) -> None:
    assert outcomes[name].startswith(EXPECTED[name])
