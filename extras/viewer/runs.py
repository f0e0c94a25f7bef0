"""Runs below a folder, and the published batches of each. Reads names and small files only: it is fast for any size."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernels_eval.errors import InputError
from tasks.tracking.figures import FIGURES_FILE
from tasks.trajectories.reader import find_batches
from tasks.trajectories.schema import TURNS_FILE

Kind = Literal["sampled", "greedy", "training", "other"]
KINDS: dict[Kind, str] = {
    "sampled": "held-out, sampled answers",
    "greedy": "held-out, greedy answers",
    "training": "training batches",
    "other": "other batches",
}
_EVALUATION = re.compile(r"(?:policy-(?P<version>\d+)|(?P<other>control|rejection))(?P<greedy>-greedy)?")
_CONTROLS = {"control": "control: more SFT", "rejection": "control: rejection sampling"}
_FLOW_RUN = re.compile(r"Prefect flow run ([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})\b")


@dataclass(frozen=True)
class Batch:
    """One published set of trajectories: a policy's answers to held-out problems, or those of one RL iteration."""

    key: str
    """Unique within its run."""
    kind: Kind
    order: int
    """Weight version of the policy that answered; controls come after all others."""
    title: str
    folder: Path

    @property
    def file(self) -> Path:
        """Its table of turns."""
        return self.folder / TURNS_FILE


@dataclass(frozen=True)
class RunFolder:
    """A run, or another data set of trajectories."""

    name: str
    folder: Path
    batches: dict[str, Batch]
    """By key: evaluations first, each kind in the order of the policies."""

    @property
    def newest(self) -> Batch | None:
        """The batch to begin with: the last held-out evaluation of sampled answers, else the last batch."""
        sampled = [batch for batch in self.batches.values() if batch.kind == "sampled" and batch.key not in _CONTROLS]
        return (sampled or list(self.batches.values()) or [None])[-1]

    @property
    def flow_run(self) -> str | None:
        """Id of its last Prefect flow run, from its log; None in runs of earlier versions."""
        try:
            found = _FLOW_RUN.findall((self.folder / "log.txt").read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return None
        return found[-1] if found else None


def find_runs(path: Path) -> dict[str, RunFolder]:
    """Return the runs in a folder of runs, the newest first; a single run, or a data set of trajectories, by its name.

    Raises InputError if there is none.
    """
    if (path / "config.yaml").is_file():
        return {path.resolve().name: _run(path.resolve())}
    folders = [folder for folder in _folders(path) if (folder / "config.yaml").is_file()]
    if folders:
        folders.sort(key=lambda folder: (-_changed(folder), folder.name))
        return {folder.name: _run(folder) for folder in folders}
    try:
        batches = find_batches(path)
    except InputError as error:
        raise InputError(
            f"{path}: expected a folder of runs, a run, or a data set of trajectories, found none"
        ) from error
    name = path.resolve().name
    named = {
        folder.name: Batch(folder.name, "other", place, folder.name, folder.resolve())
        for place, folder in enumerate(batches)
    }
    return {name: RunFolder(name, path.resolve(), named)}


def unreadable_runs(path: Path) -> list[Path]:
    """Return the folders of a folder of runs that have a log or policies, and no configuration: they are not shown."""
    if (path / "config.yaml").is_file():
        return []
    marks = ("log.txt", "checkpoints", FIGURES_FILE)
    return [
        folder
        for folder in _folders(path)
        if not (folder / "config.yaml").is_file() and any((folder / mark).exists() for mark in marks)
    ]


def _folders(path: Path) -> list[Path]:
    """Return the folders in a folder, without links (`latest`)."""
    return [each for each in path.iterdir() if each.is_dir() and not each.is_symlink()] if path.is_dir() else []


def _changed(run: Path) -> float:
    return max(file.stat().st_mtime for name in (FIGURES_FILE, "config.yaml") if (file := run / name).exists())


def _run(folder: Path) -> RunFolder:
    found = sorted(
        [*_evaluations(folder), *_iterations(folder)], key=lambda batch: (list(KINDS).index(batch.kind), batch.order)
    )
    return RunFolder(folder.name, folder, {batch.key: batch for batch in found})


def _evaluations(run: Path) -> Iterator[Batch]:
    for folder in (run / "evaluations").glob("*"):
        match = _EVALUATION.fullmatch(folder.name)
        if match is None or not (folder / TURNS_FILE).is_file():
            continue  # an artifact that `kernelmill data gc` removed leaves a dangling link
        version = match["version"]
        title = _CONTROLS[match["other"]] if version is None else f"policy {int(version)}"
        order = 10**9 if version is None else int(version)
        kind: Kind = "greedy" if match["greedy"] else "sampled"
        yield Batch(folder.name, kind, order, f"{title}, greedy" if match["greedy"] else title, folder.resolve())


def _iterations(run: Path) -> Iterator[Batch]:
    for folder in (run / "trajectories").glob("iteration=*"):
        number = folder.name.partition("=")[2]
        if number.isdigit() and (folder / TURNS_FILE).is_file():
            yield Batch(f"iteration-{number}", "training", int(number), f"iteration {number}", folder.resolve())
