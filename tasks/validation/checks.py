"""Checks between stages: each reads an artifact, runs its suites, writes Data Docs, and passes the artifact on or
fails.

Row-level rules take rows out (tasks.validation.quarantine); the batch goes on without them, unless they are more than
`max_quarantined_fraction`. Rules about the batch must hold for the remaining rows. Otherwise `ValidationFailed` names
the suite, the expectation, the column, the value found, and a row.
"""

import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.pipeline.references import ArtifactRef, CheckpointRef, ProblemSetRef, SftDataRef, TrajectoryBatchRef
from tasks.pipeline.store import publish, published_digest, read_metadata
from tasks.pipeline.tables import METRICS_FILE, PAIRS_FILE, PROBLEMS_FILE, read_table
from tasks.problems.row import Split
from tasks.trajectories.content import TABLES, table_digest
from tasks.trajectories.reader import read_trajectories, read_turns
from tasks.trajectories.schema import TRAJECTORIES_FILE, TURNS_FILE
from tasks.validation import projections
from tasks.validation.config import ValidationConfig
from tasks.validation.quarantine import bad_rows, bad_trajectories, is_row_level, split_file, write_quarantine
from tasks.validation.suite import Check, Finding, Suite, load_suite, reward_range

if TYPE_CHECKING:
    from tasks.validation.runner import Checks

R = TypeVar("R", bound=ArtifactRef)


class Failure(FrozenModel):
    """One expectation that did not hold."""

    data: str
    """The checked artifact's folder."""
    suite: str
    expectation: str
    """Great Expectations' name of it."""
    column: str
    """Column of the suite's projection; columns joined by a comma, or `-` for the table."""
    found: str
    expected: str
    example: str
    """Id of one row that breaks it; `-` if it is a property of the whole batch."""
    consequence: str = ""
    """Reason for stopping the flow, if one row alone would not."""
    data_docs: str = ""
    """Page with all results."""

    def sentence(self) -> str:
        """Return the failure as one sentence."""
        text = (
            f"{self.data}: suite {self.suite!r}: {self.expectation} on column {self.column}: "
            f"expected {self.expected}, found {self.found}"
        )
        if self.example != "-":
            text += f", e.g. row {self.example}"
        if self.consequence:
            text += f"; {self.consequence}"
        if self.data_docs:
            text += f" (see {self.data_docs})"
        return text


class ValidationFailed(InputError):  # noqa: N818 (says what happened, as flows show it)
    """A check failed. Never retried: the same data fails again."""

    heading = "validation failed"

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure

    def __str__(self) -> str:
        return self.failure.sentence()

    @property
    def summary(self) -> str:
        """The expectation and its column."""
        return f"{self.failure.expectation} on {self.failure.column} failed"

    def markdown(self) -> str:
        """Return a table of what was expected and found, and what to do."""
        failure = self.failure
        rows = [
            ("expectation", f"`{failure.expectation}` of suite `{failure.suite}`"),
            ("column", f"`{failure.column}`"),
            ("expected", failure.expected),
            ("found", failure.found),
            ("an example", f"row `{failure.example}`" if failure.example != "-" else "the batch as a whole"),
            ("data", f"`{failure.data}`"),
            ("Data Docs", f"`{failure.data_docs}`"),
        ]
        body = "\n".join(f"| **{name}** | {_cell(value)} |" for name, value in rows)
        return (
            f"| | |\n|---|---|\n{body}\n\n"
            f"Why this stops the run: {failure.consequence or 'the expectation is critical'}.\n\n"
            "The same data fails again: nothing was retried, nothing was published. Mend the data or the expectation, "
            "then start the same run again; finished stages are not repeated."
        )


def _cell(text: str) -> str:
    """Return text escaped for a cell of a Markdown table."""
    return " ".join(text.split()).replace("|", "\\|")


RAW, PUBLISHED = "raw", "published"


def validate_problems(problems: ProblemSetRef, config: ValidationConfig, docs_dir: Path) -> ProblemSetRef:
    """Return the problem set if every row is valid. It is made, not sampled: nothing is quarantined."""
    projection = projections.problems_projection(read_table(problems.path / PROBLEMS_FILE))
    return _if_valid(problems, projection, load_suite("problems", config.suites), docs_dir)


def validate_update_metrics(checkpoint: CheckpointRef, config: ValidationConfig, docs_dir: Path) -> CheckpointRef:
    """Return the checkpoint if the metrics of its training are finite and in range."""
    projection = projections.metrics_projection(read_table(checkpoint.path / METRICS_FILE))
    return _if_valid(checkpoint, projection, load_suite("update_metrics", config.suites), docs_dir)


def _if_valid(data: R, projection: pl.DataFrame, suite: Suite, docs_dir: Path) -> R:
    """Return `data` if its projection keeps every rule. Raises ValidationFailed otherwise."""
    with _checks(docs_dir) as checks:
        findings = checks.run([Check(RAW, suite, projection)])
    _require(findings, data, docs_dir)
    return data


def validate_sft_pairs(
    data: SftDataRef, config: ValidationConfig, reward: str, destination: Path, quarantine: Path, docs_dir: Path
) -> SftDataRef:
    """Return the SFT data, or a copy at `destination` without its bad rows, which go to `quarantine`."""
    suite = load_suite("sft_pairs", config.suites, reward_range(reward))
    file = data.path / PAIRS_FILE
    all_judged = read_metadata(data.path).get("judged", "all") == "all"
    projection = projections.pairs_projection(read_table(file), data.verified, all_judged)
    with _checks(docs_dir) as checks:
        findings = checks.run([Check(RAW, suite, projection)])
        bad = bad_rows(projection, findings)
        left = projection.filter(~pl.col("pair_id").is_in(bad.get_column("pair_id").implode()))
        if not bad.is_empty():
            findings += checks.run([Check(PUBLISHED, suite, left)])
    if bad.is_empty():
        _require(findings, data, docs_dir)
        return data
    taken = projection.height - left.height
    reasons = dict(bad.select("pair_id", "reason").iter_rows())
    write_quarantine(quarantine, [file], "pair_id", reasons, data.uri)
    _allow(taken, projection.height, "pairs", findings, data, config, quarantine, docs_dir)
    _require([finding for finding in findings if finding.check.data == PUBLISHED], data, docs_dir)
    used = int(left.get_column("used").sum())
    metadata = _metadata(data, taken, quarantine) | {"pairs": left.height, "used": used}
    with publish(destination, metadata, {file.name: table_digest}) as folder:
        split_file(file, "pair_id", reasons, folder / file.name, None)
    return _published(data, destination, pairs=used)


def validate_trajectories(
    raw: TrajectoryBatchRef,
    config: ValidationConfig,
    gamma: float,
    reward: str,
    destination: Path,
    quarantine: Path,
    docs_dir: Path,
) -> TrajectoryBatchRef:
    """Publish the valid trajectories of a raw batch at `destination` and return them; the others go to `quarantine`.

    Returns and rewards are recomputed with `gamma` and `reward` (the name of the function). A training batch must also
    hold a group with a gradient. Raises ValidationFailed, or InputError if a table cannot be read.
    """
    turns, trajectories = read_turns(raw), read_trajectories(raw)
    suites = {
        name: load_suite(name, config.suites, reward_range(reward)) for name in ("turns", "trajectories", "groups")
    }
    views = {
        "turns": projections.turns_projection(turns, trajectories, gamma, reward),
        "trajectories": projections.trajectories_projection(trajectories, turns, gamma),
    }
    with _checks(docs_dir) as checks:
        found = {name: checks.run([Check(RAW, suites[name], view)]) for name, view in views.items()}
        bad = bad_trajectories(*(bad_rows(view, found[name]) for name, view in views.items()))
        is_bad = pl.col("trajectory_id").is_in(bad.get_column("trajectory_id").implode())
        further: list[Check] = []
        if not bad.is_empty():
            further += [Check(PUBLISHED, suites[name], view.filter(~is_bad)) for name, view in views.items()]
        if Split.TRAIN.value in turns.get_column("split"):
            further.append(Check(PUBLISHED, suites["groups"], projections.groups_projection(turns.filter(~is_bad))))
        findings = [*chain.from_iterable(found.values()), *checks.run(further)]
    files = [raw.path / TRAJECTORIES_FILE, raw.path / TURNS_FILE]
    reasons = dict(bad.select("trajectory_id", "reason").iter_rows())
    if reasons:
        write_quarantine(quarantine, files, "trajectory_id", reasons, raw.uri)
        _allow(len(reasons), trajectories.height, "trajectories", findings, raw, config, quarantine, docs_dir)
    decisive = [finding for finding in findings if finding.check.data == PUBLISHED or not reasons]
    _require(decisive, raw, docs_dir)
    counts: dict[str, int] = {}
    with publish(destination, _metadata(raw, len(reasons), quarantine), TABLES) as folder:
        for file in files:
            if reasons:
                counts[file.name], _ = split_file(file, "trajectory_id", reasons, folder / file.name, None)
            else:
                shutil.copyfile(file, folder / file.name)
                counts[file.name] = turns.height if file.name == TURNS_FILE else trajectories.height
    return _published(raw, destination, trajectories=counts[TRAJECTORIES_FILE], turns=counts[TURNS_FILE])


def _published(origin: R, destination: Path, **counts: int) -> R:
    """Return the reference to a checked copy of `origin`."""
    digest = published_digest(destination)
    return origin.model_copy(update={"uri": str(destination.resolve()), "digest": digest, **counts})


@contextmanager
def _checks(docs_dir: Path) -> Generator["Checks"]:
    """Yield what runs suites; the pages are written at the end."""
    from tasks.validation.runner import Checks  # imports Great Expectations

    checks = Checks(docs_dir)
    yield checks
    checks.write_pages()


def _metadata(origin: ArtifactRef, quarantined: int, quarantine: Path) -> dict[str, Any]:
    """Return the origin's metadata with the results of validation."""
    own: dict[str, Any] = {"validated": origin.uri, "quarantined": quarantined}
    return read_metadata(origin.path) | own | ({"quarantine": str(quarantine)} if quarantined else {})


def _require(findings: Sequence[Finding], data: ArtifactRef, docs_dir: Path) -> None:
    """Raise ValidationFailed for the first critical finding."""
    for finding in findings:
        if finding.expectation.severity == "critical":
            raise ValidationFailed(_failure(finding, data, docs_dir))


def _allow(
    bad: int,
    rows: int,
    noun: str,
    findings: Sequence[Finding],
    data: ArtifactRef,
    config: ValidationConfig,
    quarantine: Path,
    docs_dir: Path,
) -> None:
    """Raise ValidationFailed, naming the rule that most rows break, if the settings allow less quarantine."""
    if bad <= config.max_quarantined_fraction * rows:
        return
    about_rows = [finding for finding in findings if finding.check.data == RAW and is_row_level(finding.expectation)]
    worst = max(about_rows, key=lambda finding: len(finding.places))
    consequence = (
        f"{bad} of {rows} {noun} had to be quarantined (in {quarantine}), more than "
        f"validation.max_quarantined_fraction = {config.max_quarantined_fraction:g} allows"
    )
    raise ValidationFailed(_failure(worst, data, docs_dir, consequence))


def _failure(finding: Finding, data: ArtifactRef, docs_dir: Path, consequence: str = "") -> Failure:
    rule = finding.expectation
    return Failure(
        data=data.uri,
        suite=finding.check.suite.name,
        expectation=rule.type,
        column=rule.column,
        found=finding.found,
        expected=f"{rule.bounds} ({rule.meaning})",
        example=finding.example,
        consequence=consequence,
        data_docs=str(docs_dir / "index.html"),
    )
