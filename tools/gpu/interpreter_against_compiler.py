"""Differences between kernels in the judge's interpreter and the same kernels compiled.

    python tools/gpu/interpreter_against_compiler.py interpret results.json    # without a GPU: stores what each writes
    python tools/gpu/interpreter_against_compiler.py compare results.json      # on a GPU: runs each compiled, prints differences
    python tools/gpu/interpreter_against_compiler.py honest                    # on a GPU: the red team's honest kernels
    python tools/gpu/interpreter_against_compiler.py refusals results.json     # without a GPU: compiles each, no run

`compare` prints each kernel whose values, type or refusal differ, and a table of counts; its exit code is 1 if one of
them is not in `EXPLAINED`. Kernels: tools/gpu/kernel_pairs.py. Each compiled kernel runs in a child process together with the
others until one breaks the device; the next child goes on behind it.
"""

import argparse
import importlib.util
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOUBLE = ROOT / "tests/doubles/interpreted.py"
sys.path[:0] = [str(Path(__file__).parent), str(ROOT)]

from kernel_pairs import all_launches  # noqa: E402

HEAD = "import triton\nimport triton.language as tl\nfrom triton.language.extra import libdevice\n\n\n"
TOLERANCES = {8: 0.0, 16: 2e-3, 32: 4e-6, 64: 1e-9}
"""Relative differences of floats, by the width of their type: functions of the device are not rounded exactly."""

_FAILS = "the compiler's own passes fail on it; the judge's compile step refuses it"
EXPLAINED = {
    "tl.fdiv(x, y) of float16": _FAILS,
    "tl.fdiv(x, y) of bfloat16": _FAILS,
    "tl.clamp(x, -1.0, 1.0) of float64": _FAILS,
    "bfloat16 sum": "the compiler fuses the product and the sum into one rounding",
    "dot of int8, ieee": "the smallest tile depends on the device: 32 along K; the judge's compile step refuses it",
    "dot of int8, tf32": "the smallest tile depends on the device: 32 along K; the judge's compile step refuses it",
}
"""Differences that stay, and the reason."""


def main() -> int:
    """Run the part that the command line names; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("interpret", "compare", "honest", "refusals", "child"))
    parser.add_argument("results", type=Path, nargs="?", default=Path("interpreted.json"))
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    options = parser.parse_args()
    if options.part == "child":
        return run_child()
    if options.part == "honest":
        return run_honest(options.only)
    launches = {name: launch for name, launch in all_launches().items() if options.only in name}
    if options.part == "interpret":
        outcomes = interpret(launches)
        options.results.write_text(json.dumps(outcomes))
        print(f"{len(outcomes)} kernels, {sum('error' in outcome for outcome in outcomes.values())} refused")
        return 0
    stored = json.loads(options.results.read_text())
    return compare(launches, stored, may_run=options.part == "compare")


def interpret(launches: dict[str, Any]) -> dict[str, Any]:
    """Return what each kernel writes in the interpreter."""
    done = subprocess.run(
        [sys.executable, str(DOUBLE)],
        input=json.dumps(list(launches.values())),
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    return dict(zip(launches, json.loads(done.stdout.splitlines()[-1]), strict=True))


def compare(launches: dict[str, Any], stored: dict[str, Any], may_run: bool) -> int:
    """Print the kernels that differ, and counts; returns 1 if there are any."""
    counts: Counter[str] = Counter()
    for name, compiled in compiled_outcomes(launches, may_run):
        difference = differs(stored[name], compiled)
        kind = difference.split(":")[0] if difference else "refused by both" if "error" in compiled else "same"
        kind = "explained" if difference and name in EXPLAINED else kind
        counts[kind] += 1
        if difference:
            print(f"{name}\n    {difference}\n    {EXPLAINED.get(name, 'not explained')}", flush=True)
    print("\n".join(f"{count:5} {kind}" for kind, count in counts.most_common()))
    return int(bool(set(counts) - {"same", "refused by both", "explained"}))


def differs(interpreted: dict[str, Any], compiled: dict[str, Any]) -> str:
    """Describe the first difference of two outcomes, or return an empty string."""
    if "error" in interpreted or "error" in compiled:
        sides = [outcome.get("message", "runs")[:300] for outcome in (interpreted, compiled)]
        alike = ("error" in interpreted) == ("error" in compiled)
        only = "the interpreter" if "error" in interpreted else "the compiler"
        return "" if alike else f"only {only} refuses: interpreted {sides[0]!r}, compiled {sides[1]!r}"
    if "tensors" not in compiled:  # compiled, not run
        return ""
    ours, theirs = interpreted["tensors"], compiled["tensors"]
    if ours["t_ptr"] != theirs["t_ptr"]:
        return f"types: {ours['t_ptr'][0]} bits interpreted, {theirs['t_ptr'][0]} compiled"
    tolerance = TOLERANCES.get(ours["t_ptr"][0], 0.0)
    for place, (mine, other) in enumerate(zip(ours["o_ptr"], theirs["o_ptr"], strict=True)):
        if not same(mine, other, tolerance):
            return f"values: element {place} is {mine} interpreted, {other} compiled"
    return ""


def same(mine: float | None, other: float | None, tolerance: float) -> bool:
    """Return True if two values agree; None is NaN."""
    if mine is None or other is None or not math.isfinite(mine) or not math.isfinite(other):
        return mine == other
    return abs(mine - other) <= tolerance * max(abs(mine), abs(other), 1.0 if isinstance(mine, float) else 0.0)


def compiled_outcomes(launches: dict[str, Any], may_run: bool) -> list[tuple[str, dict[str, Any]]]:
    """Compile, and run, each kernel, in children that are replaced when a kernel breaks the device."""
    left = list(launches.items())
    found: list[tuple[str, dict[str, Any]]] = []
    with tempfile.TemporaryDirectory() as folder:
        while left:
            job = json.dumps({"launches": left, "run": may_run, "folder": folder})
            environment = os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)}
            done = subprocess.run(
                [sys.executable, __file__, "child"], input=job, capture_output=True, text=True, env=environment
            )
            lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
            found += [(name, outcome) for name, outcome in lines]
            left = left[len(lines) :]
            if left and not (lines and lines[-1][1].get("error") == "DeviceLost"):
                found.append((left[0][0], {"error": "Crashed", "message": done.stderr[-300:]}))
                left = left[1:]
    return found


def run_child() -> int:
    """Compile and run launches, one line of JSON each; ends early once the device is lost."""
    job = json.load(sys.stdin)
    for number, (name, launch) in enumerate(job["launches"]):
        outcome = compiled(number, launch, job["run"], Path(job["folder"]))
        print(json.dumps([name, outcome]), flush=True)
        if outcome.get("error") == "DeviceLost":
            return 0
    return 0


def compiled(number: int, launch: dict[str, Any], may_run: bool, folder: Path) -> dict[str, Any]:
    """Return what a compiled kernel writes, or why the compiler refuses it."""
    import torch

    try:
        kernel = load(number, launch["source"], folder)
        if not may_run:
            compile_only(kernel, launch)
            return {}
        tensors = {name: on_device(value) for name, value in launch["arguments"].items() if isinstance(value, dict)}
        kernel[tuple(launch["grid"])](**{**launch["arguments"], **tensors})
        torch.cuda.synchronize()
    except Exception as error:  # noqa: BLE001
        lost = "CUDA error" in str(error) or "illegal memory" in str(error)
        cause = error.__cause__ or error
        text = " ".join(str(cause).split())
        return {"error": "DeviceLost" if lost else type(error).__name__, "message": text[-300:]}
    return {"tensors": {name: values(tensor) for name, tensor in tensors.items()}}


def load(number: int, source: str, folder: Path) -> Any:
    """Return the kernel of a source, decorated: Triton reads the text of kernels from their file."""
    path = folder / f"kernel_{os.getpid()}_{number}.py"
    path.write_text(HEAD + re.sub(r"^def ", "@triton.jit\ndef ", source, flags=re.MULTILINE))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def compile_only(kernel: Any, launch: dict[str, Any]) -> None:
    """Compile a kernel for an H100, with arguments specialised as Triton's launcher does."""
    import triton
    from triton.backends.compiler import GPUTarget

    from kernels_eval.trace.launch_signature import TRITON_NAMES, scalar_type

    signature: dict[str, str] = {}
    constants: dict[str, Any] = {}
    for name, value in launch["arguments"].items():
        if isinstance(value, dict):
            signature[name] = f"*{TRITON_NAMES[value['dtype']]}"
        elif name.isupper() or (type(value) is int and value == 1):
            signature[name], constants[name] = "constexpr", value
        else:
            signature[name] = scalar_type(value)
    source = triton.compiler.ASTSource(fn=kernel, signature=signature, constexprs=constants)
    triton.compile(source, target=GPUTarget("cuda", 90, 32))


def on_device(value: dict[str, Any]) -> Any:
    """Return the tensor that a launch describes, on the GPU."""
    import torch

    return torch.tensor(value["data"], dtype=torch.float64 if "float" in value["dtype"] else torch.int64).to(
        "cuda", getattr(torch, value["dtype"])
    )


def values(tensor: Any) -> list[Any]:
    """Return a tensor's values, None for NaN."""
    wide = tensor.double() if tensor.dtype.is_floating_point else tensor.long()
    return [None if item != item else item for item in wide.reshape(-1).tolist()]


def run_honest(only: str) -> int:
    """Run the red team's honest kernels on the GPU at their own sizes, against PyTorch; returns 1 if one is wrong."""
    folder = ROOT / "tests/redteam/honest"
    wrong = 0
    paths = [path for path in sorted(folder.glob("*/*.py")) if only in str(path)]
    for path in paths:
        done = subprocess.run(
            [sys.executable, "-c", HONEST, str(path)],
            capture_output=True,
            text=True,
            timeout=600,
            env=os.environ | {"TRITON_INTERPRET": "0", "PYTHONPATH": str(ROOT)},
        )
        said = (done.stdout or done.stderr).strip().splitlines()
        if done.returncode or not said or said[-1] != "right":
            wrong += 1
            print(f"{path.relative_to(folder)}\n    {said[-1][:300] if said else done.returncode}", flush=True)
    print(f"{len(paths) - wrong} of {len(paths)} honest kernels are right on this GPU")
    return int(wrong > 0)


HONEST = """
import importlib.util, pathlib, sys, tempfile, torch
from kernels_eval.problem import split_source
path = pathlib.Path(sys.argv[1])
torch.set_default_device("cuda")
def load(text, name):
    file = pathlib.Path(tempfile.mkdtemp()) / f"{name}.py"
    file.write_text(text)
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
problem, kernel = (load(text, name) for text, name in zip(split_source(path.read_text(), str(path)), ("problem", "kernel")))
torch.manual_seed(0)
model = problem.Model(*problem.get_init_inputs())
torch.manual_seed(0)
new = kernel.ModelNew(*problem.get_init_inputs())
mine = new.state_dict()
new.load_state_dict({n: v for n, v in model.state_dict().items() if n in mine and mine[n].shape == v.shape}, strict=False)
def flat(value):
    if isinstance(value, torch.Tensor):
        return [value]
    items = value.values() if isinstance(value, dict) else value
    return [tensor for item in items for tensor in flat(item)]
torch.manual_seed(1)
inputs = [x.cuda() if isinstance(x, torch.Tensor) else x for x in problem.get_inputs()]
again = [x.clone() if isinstance(x, torch.Tensor) else x for x in inputs]
with torch.no_grad():
    expected, found = flat(model(*inputs)), flat(new(*again))
torch.cuda.synchronize()
assert len(expected) == len(found), f"{len(found)} outputs, expected {len(expected)}"
for a, b in zip(found, expected):
    assert a.shape == b.shape and a.dtype == b.dtype, (a.shape, a.dtype, b.shape, b.dtype)
    half = b.dtype in (torch.float16, torch.bfloat16)
    scale = b.double().abs().mean().item() + 1e-6 if b.is_floating_point() else 0
    torch.testing.assert_close(a.double(), b.double(), rtol=2e-2, atol=(3e-2 if half else 1e-2) * scale, equal_nan=True)
print("right")
"""


if __name__ == "__main__":
    sys.exit(main())
