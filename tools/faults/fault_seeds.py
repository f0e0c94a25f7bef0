"""Runs of the smallest configuration under faults drawn from seeds; each must end as the undisturbed run does.

    python tools/faults/fault_seeds.py FOLDER --seeds 1..200 [--team] [--out FILE.jsonl] [--faketime libfaketime.so.1]
    python tools/faults/fault_seeds.py FOLDER --team --kill "SFT of the optimizer; update 0 of the generator" --kill …

One seed after another: the command of a user is given, the faults of its schedule (schedule.py) happen at their
moments (injection.py), and after each end that is not success the same command is given again. A seed passes if the
run ends, no process is left, no traceback was shown, no attempt failed without a fault before, and every digest is
that of the undisturbed run with the same settings. One line a seed (JSON): the schedule, what was hit, the attempts,
the difference, and what the machine has left: memory, disk, shared memory, processes. What a failed seed printed is
kept in FOLDER/seed-N. Exit code 1 if a seed failed. Runs that are compared need equal code: give a new FOLDER after
changes. Full disks need the right to mount; a clock that jumps needs libfaketime. `--team`: the run trains two agents.
`--kill`: instead of seeds, the driver is killed in the middle of each of these stages, or at STAGE@SHARE of what the
stage took undisturbed; one run for each option.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
from injection import LOSING_NODE, Disk, Injector, Switches, adopt_orphans, damage, kill_all, processes, start
from schedule import Fault, Kind, Schedule, draw, killed_in

from flows.services.prefect_server import start_server
from flows.services.server_access import server_auth
from flows.settings.configuration import load_configuration

ROOT = Path(__file__).parents[2]
CONFIG = ROOT / "deployments/configs/test.yaml"
START_S = 3600.0
"""Longest start of a service: the machine may be busy with other work."""
SETTINGS = (
    "name=faults", "iterations=2", "control=false", "sft.steps=24", "sft.warmup_steps=5", "sft.save_interval=8",
    "sft.data.compositions=16", "problems.train=16", "problems.heldout=3", "problems.harder=0",
    "rollout.problems_per_iteration=4", "rollout.samples_per_problem=4", "evaluation.greedy=false",
    "evaluation.interval=null", "rollout.episode.reward=kernelbench - 0.2*length", "tracking.mode=disabled",
    "update.threads_per_rank=1", "rollout.threads=1", "stages.backoff_s=0.5",
    f"prefect.start_timeout_s={START_S:g}", f"ray.start_timeout_s={START_S:g}",
)  # fmt: skip
TEAM_SETTINGS = (
    # enough that some kernels are right, which the joint epoch needs; and that it does not end at once
    "name=team-faults", "sft.steps=300", "sft.save_interval=60", "sft.data.compositions=20", "problems.train=20",
    "problems.levels=[1]", "sft.data.repair_fraction=0.5", "sft.data.stop_fraction=0.2", "sft.joint.problems=8",
    "sft.joint.samples_per_problem=6", "sft.joint.epochs=100", "update.optimizer_steps=8",
    "rollout.problems_per_iteration=8", "rollout.samples_per_problem=8", "update.credit=improvement",
    "rollout.episode.agents={generator: {turns: first, shown: problem}, "
    "optimizer: {turns: later, shown: kernel, may_stop: true}}",
)  # fmt: skip
"""Of a run with two agents, beside SETTINGS."""
SERVED = (
    "rollout.engine=sglang",
    f"rollout.sglang.command=[{sys.executable}, {ROOT / 'tests/doubles/sglang_server.py'}]",
    "rollout.sglang.gpus_per_server=0",
    "rollout.sglang.flags=[--enable-deterministic-inference]",  # else answers depend on which requests meet
)
HANG_S = 5400.0
"""No attempt takes so long, on the busiest machine."""
GONE_S = 120.0
"""Longest time that processes may outlive a run."""
WATCH_S = 0.05
BEGUN = re.compile(r"prefect\.flow_runs: (.+): started$", re.MULTILINE)


class Machine:
    """Folder, Prefect server and libfaketime, which all seeds share."""

    def __init__(self, folder: Path, faketime: Path | None) -> None:
        self.folder, self.faketime = folder.resolve(), faketime
        self.folder.mkdir(parents=True, exist_ok=True)
        self.server, self.api = start_server(self.folder / "server", start_s=START_S)
        self.auth = server_auth(self.folder / "server")
        self.undisturbed: dict[str, dict[str, Any]] = {}

    def close(self) -> None:
        self.server.terminate()
        self.server.wait()

    def reference(self, schedule: Schedule) -> dict[str, Any]:
        """Return digests and seconds by stage of the undisturbed run with a schedule's settings."""
        name = f"undisturbed-{schedule.engine}-{schedule.staleness}{'-team' if schedule.team else ''}"
        if name not in self.undisturbed:
            command = Command(self, schedule, self.folder / name)
            attempt = command.attempt([], self.folder / f"{name}.txt", None)
            if attempt["exit"] != 0:
                raise SystemExit(f"the undisturbed run failed: {attempt}")
            result = command.result()
            if unknown := set(schedule.stages.every) - result["seconds"].keys():
                raise SystemExit(f"faults are drawn for stages that the run has not: {sorted(unknown)}")
            self.undisturbed[name] = result
        return self.undisturbed[name]

    def state(self) -> dict[str, Any]:
        """Return what the machine has left, in MiB."""
        mib = 2**20
        sessions = Path("/tmp/ray")
        return {
            "memory_available_mib": psutil.virtual_memory().available // mib,
            "disk_free_mib": shutil.disk_usage(self.folder).free // mib,
            "shared_memory_mib": shutil.disk_usage("/dev/shm").used // mib,
            "ray_sessions": len(list(sessions.glob("session_2*"))) if sessions.is_dir() else 0,
            "prefect_server_mib": psutil.Process(self.server.pid).memory_info().rss // mib,
        }


class Command:
    """`kernelmill train` with the settings of a schedule, in a folder of runs."""

    program = ("-m", "flows.cli.main", "train")

    def __init__(self, machine: Machine, schedule: Schedule, runs: Path) -> None:
        self.machine, self.schedule, self.runs = machine, schedule, runs
        settings = [*SETTINGS, f"rollout.staleness={schedule.staleness}", f"runs_dir={runs}"]
        settings += TEAM_SETTINGS if schedule.team else ()
        settings += SERVED if schedule.engine == "sglang" else ()
        self.run_dir = runs / load_configuration(CONFIG, settings).run_id
        self.arguments = [sys.executable, "-u", *self.program, "-c", str(CONFIG)]
        self.arguments += [part for setting in settings for part in ("-s", setting)]
        self.spared = [machine.server.pid]

    def environment(self, switches: Switches | None) -> dict[str, str]:
        """Return the variables of an attempt."""
        found = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_API")}
        path = [str(ROOT)]
        if not self.schedule.own_server:
            found |= {"PREFECT_API_URL": self.machine.api, "PREFECT_API_AUTH_STRING": self.machine.auth}
        if switches is not None and self._has(Kind.GRADIENT_NAN):
            path.insert(0, str(Path(__file__).with_name("injected")))
            found["KERNELMILL_NAN_GRADIENT"] = str(switches.nan)
        if switches is not None and self._has(Kind.CLOCK_JUMPED):
            found |= {
                "LD_PRELOAD": str(self.machine.faketime),
                "FAKETIME_TIMESTAMP_FILE": str(switches.clock),
                "FAKETIME_NO_CACHE": "1",
                "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            }
        return found | {"PYTHONPATH": os.pathsep.join(path), "COLUMNS": "200"}

    def _has(self, kind: Kind) -> bool:
        return any(fault.kind == kind for fault in self.schedule.faults)

    def attempt(self, armed: list[Fault], log: Path, disk: Disk | None) -> dict[str, Any]:
        """Give the command once; return its exit code, seconds, and what was hit. Faults that happen leave `armed`."""
        switches = Switches(log.with_name("nan"), log.with_name("clock"))
        if not switches.clock.exists():
            switches.clock.write_text("+0\n")
        said = log.stat().st_size if log.exists() else 0
        watched = _Log(self.run_dir / "log.txt")
        began, hit = time.monotonic(), list[dict[str, Any]]()
        driver = start(self.arguments, log, self.environment(switches), ROOT)
        injector = None if disk is None else Injector(disk, driver, self.spared, switches)
        seconds = {} if disk is None else self.machine.reference(self.schedule)["seconds"]
        while driver.poll() is None and time.monotonic() - began < HANG_S:
            watched.read()
            for fault in _due(armed, watched.begun, seconds):
                assert injector is not None
                if driver.poll() is not None:  # an earlier one of these ended it
                    break
                what = injector.inject(fault)
                if what is None:
                    continue
                if fault.kind in LOSING_NODE - {Kind.NODE_LOST}:
                    what = damage(self.runs, fault)
                armed.remove(fault)
                watched.read()
                during = max(watched.begun, key=watched.begun.__getitem__)
                after_s = round(time.monotonic() - began, 1)
                hit.append({"after_s": after_s, "kind": fault.kind, "during": during, "hit": what})
            if injector is not None:
                injector.settle()
            time.sleep(WATCH_S)
        hangs = driver.poll() is None
        if hangs:
            kill_all(self.spared)
        driver.wait()
        if injector is not None:
            injector.settle(now=True)
        text = log.read_bytes()[said:].decode(errors="replace")
        return {
            "seconds": round(time.monotonic() - began, 1),
            "exit": "hangs" if hangs else driver.returncode,
            "hit": hit,
            "traceback": "Traceback" in text,
            "said": [line for line in text.strip().splitlines() if line.strip()][-1:],
        }

    def result(self) -> dict[str, Any]:
        """Return digests and seconds by stage of the run, which has ended."""
        state = json.loads((self.run_dir / "state.json").read_text())
        digests = json.loads((self.run_dir / "summary.json").read_text())["digests"]
        return {"digests": digests, "seconds": {name: each["seconds"] for name, each in state["timings"].items()}}


class _Log:
    """A run's log since this attempt began."""

    def __init__(self, path: Path) -> None:
        self._path, self._place = path, path.stat().st_size if path.exists() else 0
        self._rest = ""
        self.begun: dict[str, float] = {}
        """When a stage began to compute, by label, in time.monotonic()."""

    def read(self) -> None:
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            file.seek(self._place)
            new = file.read()
            self._place += len(new)
            text, _, rest = (self._rest + new.decode(errors="replace")).rpartition("\n")
            for label in BEGUN.findall(text):
                self.begun.setdefault(label, time.monotonic())
            self._rest = rest


def _due(armed: Iterable[Fault], begun: dict[str, float], seconds: dict[str, float]) -> list[Fault]:
    """Return the faults whose moment has come."""
    now = time.monotonic()
    return [
        fault
        for fault in armed
        if fault.stage in begun and now >= begun[fault.stage] + fault.share * seconds.get(fault.stage, 0.0)
    ]


def run_seed(machine: Machine, schedule: Schedule) -> dict[str, Any]:
    """Run one seed to its end; return its line."""
    began, folder = time.monotonic(), machine.folder / f"seed-{schedule.seed}"
    expected = machine.reference(schedule)["digests"]
    shutil.rmtree(folder, ignore_errors=True)
    disk = Disk(folder / "runs")
    command, armed, attempts = Command(machine, schedule, disk.folder), list(schedule.faults), list[dict[str, Any]]()
    wrong: list[str] = []
    try:
        while not attempts or attempts[-1]["exit"] != 0:
            if attempts:
                time.sleep(schedule.pause_s)
            attempts.append(command.attempt(armed, folder / "said.txt", disk))
            last = attempts[-1]
            if last["traceback"]:
                wrong.append("a traceback was shown")
            if last["exit"] == "hangs":
                wrong.append(f"attempt {len(attempts)} hangs")
            if last["exit"] != 0 and not last["hit"]:
                wrong.append(f"attempt {len(attempts)} fails without a fault: {last['said']}")
                if len(attempts) > 1 and not attempts[-2]["hit"]:
                    break
        difference = _difference(expected, command.result()["digests"]) if attempts[-1]["exit"] == 0 else {}
        if difference:
            wrong.append(f"{len(difference)} digests differ")
        if left := _left(command.spared):
            wrong.append(f"processes are left: {left}")
        used = disk.used // 2**20
        if wrong and command.run_dir.is_dir():
            shutil.copytree(command.run_dir, folder / "run", symlinks=True, dirs_exist_ok=True)
    finally:
        kill_all(command.spared)
        disk.remove()
    if not wrong:
        shutil.rmtree(folder, ignore_errors=True)
    return {
        "seed": schedule.seed,
        "passed": not wrong,
        "wrong": wrong,
        "difference": difference,
        "missed": [asdict(fault) for fault in armed],
        "attempts": attempts,
        "schedule": asdict(schedule),
        "seconds": round(time.monotonic() - began, 1),
        "run_mib": used,
        **machine.state(),
    }


def _difference(expected: dict[str, str], found: dict[str, str]) -> dict[str, list[str | None]]:
    names = sorted(expected.keys() | found.keys())
    return {name: [expected.get(name), found.get(name)] for name in names if expected.get(name) != found.get(name)}


def _left(spared: list[int]) -> list[str]:
    """Return the command lines of processes that outlive the run for too long."""
    deadline = time.monotonic() + GONE_S
    while (left := processes(spared)) and time.monotonic() < deadline:
        time.sleep(0.5)
    found: list[str] = []
    for process in left:
        with suppress(psutil.Error):
            found.append(" ".join(process.cmdline())[:120])
    return found


def fakes_time(faketime: Path) -> bool:
    """Return whether Python has another time, and can sleep, under a libfaketime, as runs use it."""
    found = {**os.environ, "LD_PRELOAD": str(faketime), "FAKETIME": "+9999", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
    program = "import time; time.sleep(0.01); print(time.time())"
    done = subprocess.run([sys.executable, "-c", program], env=found, capture_output=True, text=True)
    return done.returncode == 0 and float(done.stdout) > time.time() + 5000


def seeds_in(text: str) -> list[int]:
    """Return the seeds that an argument names."""
    first, dots, last = text.partition("..")
    return list(range(int(first), int(last) + 1)) if dots else [int(seed) for seed in text.split(",")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", default="1..3", type=seeds_in, help="A..B, both included, or A,B,C")
    parser.add_argument("--out", type=Path, help="file to which a line a seed is added")
    parser.add_argument("--faketime", type=Path, help="libfaketime.so.1, for clocks that jump")
    parser.add_argument("--team", action="store_true", help="runs of two agents")
    parser.add_argument("--kill", action="append", default=[], metavar="STAGE[@SHARE][; …]", help="instead of seeds")
    options = parser.parse_args()
    if options.faketime and not fakes_time(options.faketime):
        parser.error(
            f"--faketime: {options.faketime} is missing, or Python cannot sleep under it (as under Debian's 0.9.10); "
            "expected a library such as the package `libfaketime` of the package index builds"
        )
    without = frozenset[Kind]() if options.faketime else frozenset({Kind.CLOCK_JUMPED})
    probe = Disk(options.folder.resolve() / "probe")
    probe.remove()
    if not probe.mounted:
        without |= {Kind.DISK_FULL}
    try:
        schedules = [
            killed_in([place.strip() for place in places.split(";")], number, options.team)
            for number, places in enumerate(options.kill, 1)
        ]
    except ValueError as error:
        parser.error(f"--kill: {error}")
    schedules = schedules or [draw(seed, without, options.team) for seed in options.seeds]
    adopt_orphans()
    machine = Machine(options.folder, options.faketime)
    failed = 0
    try:
        for schedule in schedules:
            line = run_seed(machine, schedule)
            missed = line["missed"] if options.kill else []  # a kill that hits nothing shows nothing
            failed += bool(missed) or not line["passed"]
            print(json.dumps(line), flush=True)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(line) + "\n")
    finally:
        machine.close()
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
