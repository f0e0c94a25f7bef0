"""`runs/<run>/figures.jsonl`: the figures of a run while it goes on, one JSON object a line.

time        UTC, when the line was written
iteration   RL iteration; of an evaluation: the policy's weight version
stage       `rollout`, `update`, `evaluation` (sampled answers) or `evaluation_greedy`
artifact    content digest of the artifact that the figures are of
figures     as tasks.evaluation.stage_figures gives them, and `gpu_busy` where the driver has GPUs

A line is added when its artifact is published; a stage that comes from the cache adds none. If an artifact is replaced
by another one, its new line follows, and what descended from the old one is not current any more. A kill can leave a
torn line: readers skip what is not a line of this kind, the next writer begins a new one.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from kernels_eval.frozen import FrozenModel
from tasks.evaluation.stage_figures import evaluation_figures, rollout_figures, update_figures
from tasks.pipeline.json_file import json_lines
from tasks.pipeline.references import ArtifactRef, EvaluationRef, TrajectoryBatchRef
from tasks.tracking.lines import append_lines, utc_now

FIGURES_FILE = "figures.jsonl"
FigureStage = Literal["rollout", "update", "evaluation", "evaluation_greedy"]


class FigureLine(FrozenModel):
    """Figures of one artifact."""

    time: str
    iteration: int = Field(ge=0)
    stage: FigureStage
    artifact: str
    figures: dict[str, Any]


def new_line(iteration: int, stage: FigureStage, artifact: str, figures: dict[str, Any]) -> FigureLine:
    """Return a line with the present time."""
    return FigureLine(time=utc_now(), iteration=iteration, stage=stage, artifact=artifact, figures=figures)


def append_line(run_dir: Path, line: FigureLine) -> None:
    """Append a line to the run's figures; a torn one before it is ended first."""
    append_lines(run_dir / FIGURES_FILE, [line.model_dump_json()])


def read_lines(run_dir: Path) -> list[FigureLine]:
    """Return the current lines of a run, in the order of their artifacts' publication; none if it has no file yet."""
    return current_lines(_parsed(json_lines(run_dir / FIGURES_FILE)))


def has_lines(run_dir: Path) -> bool:
    """Return True if the file has a finished line, of figures or not."""
    path = run_dir / FIGURES_FILE
    return path.is_file() and b"\n" in path.read_bytes().lstrip(b"\n")


def _parsed(stored: Iterable[dict[str, Any]]) -> Iterator[FigureLine]:
    for line in stored:
        with suppress(ValidationError):  # of another version
            yield FigureLine.model_validate(line)


def current_lines(lines: Iterable[FigureLine]) -> list[FigureLine]:
    """Return the lines without replaced ones, and without those of what descended from a replaced artifact."""
    current: dict[tuple[int, str], FigureLine] = {}
    for line in lines:
        known = current.pop((line.iteration, line.stage), None)
        if known is not None and known.artifact != line.artifact and line.stage in ("rollout", "update"):
            current = {key: other for key, other in current.items() if not _descends(other, line)}
        current[(line.iteration, line.stage)] = line
    return list(current.values())


def _descends(other: FigureLine, line: FigureLine) -> bool:
    """Return True if `other` is of what was made from the rollout or the update of `line`."""
    if other.iteration == line.iteration:
        return line.stage == "rollout" and other.stage == "update"
    lag = int(other.figures.get("lag") or 0) if other.stage == "rollout" else 0
    return other.iteration - lag > line.iteration


def record_figures(
    run_dir: Path, iteration: int, stage: FigureStage, artifact: ArtifactRef, gpu_busy: float | None = None
) -> FigureLine | None:
    """Append the line of an artifact and return it; None if the current line of its stage is of this artifact.

    `gpu_busy`: share of the time in which the driver's GPUs were busy while it was made, if that is known.
    """
    known = {(line.iteration, line.stage): line.artifact for line in read_lines(run_dir)}
    if known.get((iteration, stage)) == artifact.digest:
        return None
    measured = {} if gpu_busy is None else {"gpu_busy": gpu_busy}
    line = new_line(iteration, stage, artifact.digest, _figures_of(artifact) | measured)
    append_line(run_dir, line)
    return line


def _figures_of(artifact: ArtifactRef) -> dict[str, Any]:
    match artifact:
        case TrajectoryBatchRef():
            return rollout_figures(artifact)
        case EvaluationRef():
            return evaluation_figures(artifact)
        case _:
            return dict(update_figures(artifact))
