"""The update on one GPU: exact, fast, small in memory; against TRL in the same run. Run as a script; no Ray, no table
library.

    python3 tools/gpu/update_on_gpu.py [--parts exact,trl,...] [--out FOLDER] [--budget SECONDS] [--tiny-cpu]

Every part (tools/gpu/update_parts.py) is a process of its own with a time limit; its failure leaves the others alone.
The process of the next part is started early and loads its libraries meanwhile, then waits for its turn. What a part
says is printed at once and written to update_gpu.json in FOLDER (default $OUT, or the working folder), so that what
it had said before its time was over counts. All parts together end within `--budget` seconds (345); those that matter
most come first. `--tiny-cpu` runs tiny shapes on the CPU, to try the script.

Needs: torch, transformers, peft, deepspeed (with hjson, pydantic). For the peer also trl, datasets, dill,
multiprocess: where TRL is not installed its parts are left out, plain Transformers (`full_logits`) is the only peer,
and the summary says so.
"""

import argparse
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
MARK = "RESULT "
SHORTEST_PART_S = 25.0
"""A part that has less time than this is not worth starting."""
TINY_LIMIT_S = 240.0
PARTS = (
    ("exact", 80),
    ("ours_checkpointed", 100),
    ("trl", 110),
    ("agreement", 60),
    ("ours_compiled_checkpointed", 170),
    ("lora_8b", 120),
    ("trl_small_rows", 100),
    ("offload_4b", 160),
    ("program", 100),
    ("ours", 90),
    ("trl_bf16", 100),
    ("full_logits", 100),
    ("ours_compiled", 150),
    ("offload_exact", 60),
    ("offload_8b", 240),
    ("small", 60),
    ("small_compiled", 120),
    ("equal", 90),
    ("equal_shared", 90),
    ("trl_equal", 100),
)
"""Name, time limit in seconds; in order of what matters. What is not begun within the budget can be asked for with --parts."""
OF_TRL = ("trl", "trl_equal", "agreement", "trl_small_rows", "trl_bf16")


def main() -> None:
    """Run all parts, or one of them in this process."""
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--parts", help="names, separated by commas; all by default")
    arguments.add_argument("--out", default=os.environ.get("OUT", "."))
    arguments.add_argument("--tiny-cpu", action="store_true")
    arguments.add_argument("--budget", type=float, default=345.0, help="seconds for all parts together")
    arguments.add_argument("--one", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.one:
        run_here(given.one, given.tiny_cpu)
        return
    Path(given.out).mkdir(parents=True, exist_ok=True)
    names = given.parts.split(",") if given.parts else default_parts()
    unknown = set(names) - {name for name, _ in PARTS}
    if unknown:
        arguments.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(name for name, _ in PARTS)}")
    results = run_all(names, given)
    print(json.dumps(results["summary"], indent=1), flush=True)
    if any("error" in results[name] for name in names):
        sys.exit(1)


def default_parts() -> list[str]:
    """All parts; without TRL plain Transformers is the peer, and comes as early."""
    names = [name for name, _ in PARTS]
    if importlib.util.find_spec("trl") is None:
        names = [name for name in names if name not in OF_TRL and name != "full_logits"]
        names.insert(2, "full_logits")
    return names


def run_all(names: Sequence[str], given: argparse.Namespace) -> dict[str, Any]:
    """Run the parts one after the other; write what is known after each thing that one says."""
    limits = dict(PARTS)
    results: dict[str, Any] = {"parts": list(names)}

    def note(name: str, found: dict[str, Any]) -> None:
        results[name] = found
        results["summary"] = summary(results)
        Path(given.out, "update_gpu.json").write_text(json.dumps(results, indent=1), encoding="utf-8")

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        waiting = Part(names[0], given.tiny_cpu, Path(folder))
        try:
            for number, name in enumerate(names):
                part = waiting
                left = given.budget - (time.monotonic() - began)
                if left < SHORTEST_PART_S and not given.tiny_cpu:
                    note(name, {"error": "not started: the time for all parts was over"})
                    continue
                part.go()
                if number + 1 < len(names):
                    waiting = Part(names[number + 1], given.tiny_cpu, Path(folder))
                part.follow(TINY_LIMIT_S if given.tiny_cpu else min(limits[name], left), note)
        finally:
            waiting.stop()
    return results


class Part:
    """A process that loads its libraries at once and begins when it is told to."""

    def __init__(self, name: str, tiny_cpu: bool, folder: Path) -> None:
        self.name = name
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        environment = os.environ | {
            "PYTHONPATH": f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}",
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
            "TOKENIZERS_PARALLELISM": "false",
            "HF_HUB_OFFLINE": "1",
            **({"CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"} if tiny_cpu else {}),
        }
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, "-u", str(Path(__file__).resolve()), "--one", name, *(["--tiny-cpu"] if tiny_cpu else [])],
                stdin=subprocess.PIPE, stdout=out, stderr=err, env=environment, cwd=REPOSITORY, start_new_session=True,
            )  # fmt: skip

    def go(self) -> None:
        """Let it begin."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()
        except BrokenPipeError:  # it has ended already: `follow` says why
            pass

    def follow(self, limit_s: float, note: Any) -> None:
        """Pass on what it says until it ends or its time is over."""
        began = time.monotonic()
        found: dict[str, Any] = {}
        over = False
        while not over:
            ended = self._process.poll() is not None
            over = ended or time.monotonic() - began > limit_s
            said = _results(self._out)
            if said and said[-1] != found:
                found = said[-1]
                print(f"== {self.name}: {json.dumps(found)}", flush=True)
                note(self.name, found)
            if not over:
                time.sleep(0.2)
        if self._process.poll() is None:
            found = found | {"error": f"took longer than {limit_s:.0f} s"}
        elif self._process.returncode or not found:
            said = self._err.read_text(errors="replace")[-1800:]
            found = found | {"error": f"exit {self._process.returncode}: {said}"}
        self.stop()
        found = found | {"part_s": round(time.monotonic() - began, 1)}
        print(
            f"== {self.name}: ended: {json.dumps({k: found[k] for k in found if k in ('error', 'part_s')})}", flush=True
        )
        note(self.name, found)

    def stop(self) -> None:
        """End it, and whatever it has started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()


def _results(file: Path) -> list[dict[str, Any]]:
    """Return what a part has said so far; a line that is being written does not count yet."""
    lines = file.read_text(encoding="utf-8", errors="replace").split("\n")[:-1]
    return [json.loads(line[len(MARK) :]) for line in lines if line.startswith(MARK)]


def summary(results: dict[str, Any]) -> dict[str, Any]:
    """Ratios of ours to the peers."""
    peers = {
        name: results[name]
        for name in ("trl", "trl_small_rows", "trl_bf16", "full_logits")
        if results.get(name, {}).get("tokens_per_s")
    }
    ours = {name: found for name, found in results.items() if name.startswith("ours") and found.get("tokens_per_s")}
    ratios = {
        f"{name} / {peer}": {
            "tokens_per_s": round(our["tokens_per_s"] / their["tokens_per_s"], 2),
            "peak_memory": round(our["peak_gib"] / their["peak_gib"], 2),
        }
        for name, our in ours.items()
        for peer, their in peers.items()
    }
    missing = [] if any(name.startswith("trl") for name in peers) else ["no figure of TRL: not installed, or failed"]
    return ratios | {"notes": missing}


def run_here(name: str, tiny: bool) -> None:
    """Load what all parts need, wait for the turn, run the part."""
    sys.path[:0] = [str(REPOSITORY), str(Path(__file__).parent)]
    import update_parts

    update_parts.preload(name)
    if not sys.stdin.readline():  # whoever started it is gone
        return
    update_parts.run_part(name, tiny)


if __name__ == "__main__":
    main()
