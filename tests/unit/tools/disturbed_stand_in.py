"""A stand-in for a run under faults, and for the machine: shows what the fault scheduler does, not what a run does.

    python disturbed_stand_in.py FOLDER SEED                 runs the seed, prints its line
    python disturbed_stand_in.py -c FILE -s SETTING=VALUE…   is the run: short stages, whose results are kept

A stage that a fault is drawn for waits for it when it begins first, however slow the machine is.

A run in a folder named `forgetful` computes another result in a stage that it begins a second time.
"""

import hashlib
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[3] / "tools" / "faults"), str(Path(__file__).parents[3])]


def stand_in(run_dir: Path) -> None:
    """Do the stages that are not done yet, and write what a run writes."""
    from schedule import POLICY

    run_dir.mkdir(parents=True, exist_ok=True)
    digests: dict[str, str] = {}
    for label in POLICY.every:
        entry = run_dir.parent / "store" / label / "result"
        begun = run_dir / f"begun {label}"
        if not entry.is_file():
            with (run_dir / "log.txt").open("a") as log:
                log.write(f"INFO prefect.flow_runs: {label}: started\n")
            again = begun.exists() and "forgetful" in str(run_dir)
            held = json.loads((run_dir.parents[1] / "held.json").read_text()) if not begun.exists() else []
            begun.touch()
            time.sleep(60 if label in held else 0.01)
            entry.parent.mkdir(parents=True, exist_ok=True)
            entry.write_text(f"{label} again" if again else label)
            kept = run_dir.parent / "prefect/results" / label
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.touch()
        digests[label] = hashlib.sha256(entry.read_bytes()).hexdigest()
    (run_dir / "state.json").write_text(json.dumps({"timings": {}}))
    (run_dir / "summary.json").write_text(json.dumps({"digests": digests}))


def held_disk(runs: Path, labels: list[str]) -> Any:
    """Return the folder of runs, beside which stands for which stages a run waits."""
    from injection import Disk

    runs.parent.mkdir(parents=True, exist_ok=True)
    (runs.parent / "held.json").write_text(json.dumps(labels))
    return Disk(runs)


def main() -> None:
    if sys.argv[1] == "-c":
        runs = Path(next(each for each in sys.argv if each.startswith("runs_dir=")).removeprefix("runs_dir="))
        stand_in(runs / "a-run")
        return
    import fault_seeds
    from injection import adopt_orphans
    from schedule import draw

    folder, seed = Path(sys.argv[1]), int(sys.argv[2])
    fault_seeds.Command.program = (__file__,)
    fault_seeds.load_configuration = lambda *_: SimpleNamespace(run_id="a-run")
    (folder / "undisturbed").mkdir(parents=True)
    (folder / "undisturbed" / "held.json").write_text("[]")
    stand_in(folder / "undisturbed" / "runs" / "a-run")
    reference = json.loads((folder / "undisturbed/runs/a-run/summary.json").read_text()) | {"seconds": {}}
    schedule = draw(seed)
    fault_seeds.Disk = lambda runs: held_disk(runs, [fault.stage for fault in schedule.faults])
    machine = SimpleNamespace(
        folder=folder, faketime=None, api="", auth="", server=SimpleNamespace(pid=0), state=dict,
        reference=lambda _: reference,
    )  # fmt: skip
    adopt_orphans()
    print(json.dumps(fault_seeds.run_seed(machine, schedule)))


if __name__ == "__main__":
    main()
