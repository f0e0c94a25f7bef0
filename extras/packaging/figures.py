"""Figures of a model card: held-out tables with intervals, where speeds come from, and the size of the model."""

from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
from safetensors import SafetensorError, safe_open

from extras.packaging.inputs import PackageInputs
from kernels_eval.errors import InputError
from kernels_eval.verdict import TimingSource
from tasks.evaluation.comparison import SHOWN_FIGURES
from tasks.evaluation.config import EvaluationConfig
from tasks.evaluation.evaluate import Part, paired, read_evaluation
from tasks.evaluation.report.tables import change_text, interval_text, shown
from tasks.pipeline.references import EvaluationRef
from tasks.trajectories.reader import read_turns_file
from tasks.trajectories.schema import TURNS_FILE

_PARTS: dict[Part, tuple[str, str]] = {"standard": ("overall", "held-out"), "harder": ("harder", "harder held-out")}
"""Key in `evaluation.json`, and words, of each part of the held-out problems."""


class HeldoutTable(NamedTuple):
    """A table of held-out figures."""

    title: str
    columns: list[str]
    rows: list[list[str]]


class Judging(NamedTuple):
    """The judge and the clock behind the held-out figures."""

    versions: tuple[str, ...]
    """Versions of the judge."""
    speeds: str
    """A sentence on the speeds: estimates or measured, and of what hardware."""


def heldout_tables(inputs: PackageInputs) -> list[HeldoutTable]:
    """Return the tables of sampled and of greedy answers, each of the standard and of the harder problems."""
    kinds = (("Sampled", inputs.sampled, inputs.evaluation), ("Greedy", inputs.greedy, inputs.evaluation.greedily()))
    tables = [
        _table(kind, found, inputs.version, config, part)
        for kind, found, config in kinds
        if inputs.version in found
        for part in _PARTS
    ]
    return [table for table in tables if table is not None]


def _table(
    kind: str, found: dict[int, EvaluationRef], version: int, config: EvaluationConfig, part: Part
) -> HeldoutTable | None:
    key, words = _PARTS[part]
    versions = sorted({0, version} & found.keys())
    figures: dict[int, dict[str, Any]] = {
        number: read_evaluation(found[number]).get(key) or {"n": 0} for number in versions
    }
    if not all(each["n"] for each in figures.values()):
        return None
    change = paired(found[0], found[version], config, part) if len(figures) > 1 else {}
    columns = [f"policy {number}" for number in figures] + ["change, paired"] * bool(change)
    rows: list[list[str]] = []
    for name, title in SHOWN_FIGURES.items():
        cells = [_cell(shown(name, each[name]), interval_text(name, each[f"{name}_ci"])) for each in figures.values()]
        if change:
            interval = interval_text(name, change[f"delta_{name}_ci"], "+", " … ")
            cells.append(_cell(change_text(name, change[f"delta_{name}"]), interval))
        rows.append([title, *cells])
    count = figures[version]["n"]
    return HeldoutTable(f"{kind} answers, {count} {words} problem{'s' * (count != 1)}", ["", *columns], rows)


def _cell(value: str, interval: str) -> str:
    return f"{value} ({interval})" if interval else value


def judging_of(evaluations: list[EvaluationRef]) -> Judging:
    """Return the judge's versions and the origin of the speeds, from the verdicts of the evaluations."""
    tables = [read_turns_file(each.path / TURNS_FILE).select("verdict").unnest("verdict") for each in evaluations]
    verdicts = pl.concat(tables)
    versions = verdicts.get_column("judge_version").drop_nulls().unique().to_list()
    timed = verdicts.filter(pl.col("timing_source").is_not_null()).select("timing_source", "hardware").unique()
    hardware: dict[str, list[str]] = {}
    for source, name in sorted(timed.iter_rows()):
        hardware.setdefault(source, []).append(name)
    parts: list[str] = []
    if estimated := hardware.get(TimingSource.ROOFLINE.value):
        names = _listed([name.rpartition("/")[2].upper() for name in estimated])
        parts.append(f"estimates for {names}, by a roofline model: kernels ran in an interpreter, none on a GPU")
    if measured := hardware.get(TimingSource.GPU.value):
        parts.append(f"measured on {_listed(measured)}")
    sentence = f"Speeds are {'; others are '.join(parts)}." if parts else "No speed is known: no kernel was timed."
    return Judging(tuple(sorted(versions, key=lambda version: (len(version), version))), sentence)


def _listed(names: list[str]) -> str:
    return " and ".join(sorted(set(names)))


def parameters_in(folder: Path) -> int:
    """Return the number of parameters in the weights of a folder. Raises InputError if a file is not readable."""
    count = 0
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with safe_open(file, framework="numpy") as weights:
                for name in weights.keys():  # noqa: SIM118  # not a mapping
                    size = 1
                    for length in weights.get_slice(name).get_shape():
                        size *= length
                    count += size
        except (SafetensorError, OSError) as error:
            raise InputError(f"{file}: expected weights in the format safetensors: {error}") from error
    return count
