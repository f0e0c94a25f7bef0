"""Procedure that KernelBench publishes, in a process of its own: five comparisons and 100 timed calls.

It trusts its candidate: no process of its own, no inputs that it cannot know, no comparison of the timed calls. Inputs
are made on the GPU (`cuda`) or, as its scripts do, on the CPU (`cpu`). `Peer` is warm; `script_seconds` starts a process
for each kernel, as its `eval_from_generations.py` does.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any

_PEER = """
import json, linecache, sys, time, types, torch
def load(name, text):
    module = types.ModuleType(name); sys.modules[name] = module
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    exec(compile(text, name, "exec"), module.__dict__); return module
def moved(values):
    return [value.cuda() if isinstance(value, torch.Tensor) else value for value in values]
def evaluate(problem, kernel, where):
    started = time.perf_counter()
    with torch.no_grad(), torch.device(where):
        a, b = load("reference", problem), load("candidate", kernel)
        torch.manual_seed(42); model = a.Model().cuda()
        torch.manual_seed(42); new = b.ModelNew().cuda()
        for seed in range(5):
            torch.manual_seed(seed); inputs = moved(a.get_inputs())
            expected, found = model(*inputs), new(*inputs)
            torch.cuda.synchronize()
            right = torch.allclose(expected, found, rtol=1e-2, atol=1e-2)
            del expected, found, inputs
        torch.manual_seed(42); inputs = moved(a.get_inputs())
        for _ in range(3): new(*inputs)
        for _ in range(100):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record(); new(*inputs); end.record(); torch.cuda.synchronize()
            last = start.elapsed_time(end)
    del inputs, model, new; torch.cuda.empty_cache()
    return {"seconds": round(time.perf_counter() - started, 2), "right": right, "ms": last}
for line in sys.stdin:
    problem, kernel, places = json.loads(line)
    found = {}
    for where in set(places) - {"compiled"}:
        try:
            if where == "cuda":
                evaluate(problem, kernel.replace("BLOCK: tl.constexpr):", "BLOCK: tl.constexpr):  # warm"), where)
            found[where] = evaluate(problem, kernel, where)
            if "compiled" in places and where == "cuda":
                found["compiled"] = evaluate(problem, kernel, where)
        except Exception as error:
            found[where] = {"error": f"{type(error).__name__}: {str(error)[:200]}"}
            torch.cuda.empty_cache()
    print(json.dumps(found), flush=True)
"""


class Peer:
    """A process that evaluates one pair after another, alone on the GPU."""

    def __init__(self) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self._process: Any = subprocess.Popen([sys.executable, "-c", _PEER], **pipes)

    def evaluate(self, problem: str, kernel: str, places: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return seconds, or the error, by place: `cuda`, `cpu`, and `compiled` (as `cuda`, once more)."""
        self._process.stdin.write(json.dumps([problem, kernel, list(places)]) + "\n")
        return json.loads(self._process.stdout.readline() or "{}")

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()


def script_seconds(problem: str, kernel: str) -> dict[str, Any]:
    """Return seconds, or the error, of one evaluation in a new process, with inputs made on the CPU.

    The script also imports `datasets` and two clients of services, which is left out here.
    """
    started = time.monotonic()
    peer = Peer()
    found = peer.evaluate(problem, kernel, ["cpu"]).get("cpu", {"error": "the process ended"})
    peer.close()
    return found if "error" in found else {**found, "seconds": round(time.monotonic() - started, 2)}
