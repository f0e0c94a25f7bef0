"""Counts and resources of every calibration kernel, by the judge without a GPU: `python tools/estimate_features.py
--out features.jsonl`.

One line a case: the verdict, the launches with their counts, what the compiler says of each, and the launches of the
eager reference. Cases that the file holds already are left out, unless `--again` names their family.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from estimate_cases import Case, all_cases  # noqa: E402

from kernels_eval.compile.one_shot import CompileCache, Compiler, usages_of  # noqa: E402
from kernels_eval.config import JudgeConfig  # noqa: E402
from kernels_eval.cost.launch import Launch  # noqa: E402
from kernels_eval.pool.scratch import Scratch  # noqa: E402
from kernels_eval.pool.zygote import Zygotes  # noqa: E402
from kernels_eval.reference.reference import Reference  # noqa: E402
from kernels_eval.sandbox.fork_server import ForkServer  # noqa: E402
from kernels_eval.sandbox.limits import Limits  # noqa: E402
from kernels_eval.sandbox.messages import receive_frame, send_frame  # noqa: E402
from kernels_eval.trace.schema import KernelSource  # noqa: E402

TARGET = "cuda:90"


def features(cases: list[Case], processes: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each case, as they come."""
    scratch = Scratch()
    zygotes = Zygotes(scratch.path)
    workers = [_Worker(zygotes) for _ in range(processes)]
    shares = [cases[number::processes] for number in range(processes)]
    try:
        with ThreadPoolExecutor(processes) as pool:
            for start in range(0, max(map(len, shares)), 5):
                parts = [share[start : start + 5] for share in shares]
                for rows in pool.map(
                    lambda pair: [pair[0].row(case) for case in pair[1]], zip(workers, parts, strict=True)
                ):
                    yield from rows
    finally:
        zygotes.close()
        scratch.close()


class _Worker:
    def __init__(self, zygotes: Zygotes) -> None:
        self._zygotes = zygotes
        # A run at the full size takes most of the time, and leaves these estimates as they are.
        self._config = JudgeConfig(device="cpu", compile="never", timeout_s=20.0, full_size_share=0)
        self._compiler = Compiler(lambda: ForkServer(zygotes.fork("compile")[1]), CompileCache())
        self._start()

    def _start(self) -> None:
        _, self._channel = self._zygotes.fork_worker("cpu")
        self._channel.settimeout(300)
        receive_frame(self._channel)

    def row(self, case: Case) -> dict[str, Any]:
        """Return what is known of a case."""
        request = {"kind": "evaluate", "problem": case.problem, "kernel": case.kernel, "build": {}}
        started = time.monotonic()
        try:
            send_frame(self._channel, {**request, "config": self._config.model_dump(mode="json")})
            while (reply := receive_frame(self._channel)[0])["kind"] in ("loading", "loaded"):
                pass
            eager = Reference(case.problem, 1).eager_launches
        except Exception as error:  # noqa: BLE001 (one case must not end the run)
            self._start()
            return {"name": case.name, "status": f"{type(error).__name__}: {error}"}
        verdict = reply.get("verdict", {})
        launches = [Launch(**values) for values in reply.get("launches", [])]
        usages = self._usages(launches, reply.get("kernels", []))
        return {
            "name": case.name,
            "family": case.family,
            "kernel": f"{case.family}/{case.kernel_name}",
            "status": verdict.get("status", reply["kind"]),
            "message": verdict.get("error_message") or reply.get("message"),
            "seconds": time.monotonic() - started,
            "launches": [_counts(launch) for launch in launches],
            "usages": usages,
            "eager": [_counts(launch) for launch in eager],
        }

    def _usages(self, launches: list[Launch], kernels: list[Any]) -> list[Any]:
        own = [launch for launch in launches if launch.kernel_number >= 0]
        if not own:
            return [None] * len(launches)
        sources = [KernelSource(**kernel) for kernel in kernels]
        compiled = self._compiler.compile(sources, own, (TARGET,), Limits(wall_s=120, memory_mb=4096))
        usages = usages_of(launches, compiled.resources, (TARGET,), TARGET)
        return [None if use is None else vars(use) for use in usages]


def _counts(launch: Launch) -> dict[str, Any]:
    described = {"signature", "constants", "divisible", "line"}
    return launch.model_dump(mode="json", exclude=described)


def main() -> None:
    """Write the rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--skip", default="", help="parts of names of cases to leave out, by commas")
    parser.add_argument("--again", default="", help="families to compute again, separated by commas")
    options = parser.parse_args()
    kept: list[str] = []
    if options.out.exists():
        kept = [
            line
            for line in options.out.read_text().splitlines()
            if json.loads(line).get("family") not in options.again.split(",")
        ]
        options.out.write_text("".join(f"{line}\n" for line in kept))
    known = {json.loads(line)["name"] for line in kept}
    cases = [case for case in all_cases() if case.name not in known]
    skipped = [part for part in options.skip.split(",") if part]
    cases = [case for case in cases if not any(part in case.name for part in skipped)]
    with options.out.open("a") as out:
        for row in features(cases, options.processes):
            out.write(json.dumps(row) + "\n")
            out.flush()
            if row["status"] != "correct":
                print(row["name"], row["status"], str(row.get("message"))[:200], flush=True)


if __name__ == "__main__":
    main()
