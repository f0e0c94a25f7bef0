"""Runs suites on projections with Great Expectations and writes its Data Docs.

Great Expectations is imported inside the function: that costs about four seconds and 290 MB, which only the process
that validates should pay. It takes pandas frames, so a projection must be flat and scalar; Arrow-backed columns keep the
conversion cheap. Its pages load their styles from public content networks; without a network they are plain but legible.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from tasks.validation.suite import Expectation, Suite

_SITE = "data_docs"
_VIEWS = {"module_name": "tasks.validation.docs_views"}
_DECORATION = (
    "images/glossary_scroller.gif",
    "images/validation_failed_unexpected_values.gif",
    "images/iterative-dev-loop.png",
    "fonts",
)
"""Pictures of Great Expectations' own tour and a font: 4.0 MB of every site's 4.1; pages fall back to the system's font."""


class Check(NamedTuple):
    """One suite to be run on one projection."""

    data: str
    """`raw` or `published`: names the data in Data Docs."""
    suite: Suite
    projection: pl.DataFrame
    """Has a column `row_id`; no NaN (a null instead), no nested columns."""


class Finding(NamedTuple):
    """An expectation that Great Expectations says does not hold."""

    check: Check
    expectation: Expectation
    found: str
    rows: int
    """Rows that break it; 0 where it is a property of the batch."""
    example: str
    """A row_id, or `-`."""


def run_checks(checks: Sequence[Check], docs_dir: Path) -> list[Finding]:
    """Run every check, write Data Docs (`index.html`) to `docs_dir`, and return what did not hold, in the suites' order."""
    os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # pyright: ignore[reportAttributeAccessIssue]
    shutil.rmtree(docs_dir, ignore_errors=True)
    _add_site(context, docs_dir)
    source = context.data_sources.add_pandas("tables")
    findings: list[Finding] = []
    for check in checks:
        name = f"{check.suite.name}_{check.data}"
        rules = [_as_great_expectations(position, rule) for position, rule in enumerate(check.suite.expectations)]
        suite = context.suites.add(gx.ExpectationSuite(name=name, expectations=rules))  # pyright: ignore[reportArgumentType]
        asset = source.add_dataframe_asset(name)
        definition = context.validation_definitions.add(
            gx.ValidationDefinition(name=name, data=asset.add_batch_definition_whole_dataframe("all"), suite=suite)
        )
        result = definition.run(
            batch_parameters={"dataframe": check.projection.to_pandas(use_pyarrow_extension_array=True)},
            result_format={"result_format": "SUMMARY", "partial_unexpected_count": 5},
        )
        findings += _findings(check, result.results)
    context.build_data_docs(site_names=[_SITE])
    for name in _DECORATION:
        decoration = docs_dir / "static" / name
        if decoration.is_dir():
            shutil.rmtree(decoration)
        else:
            decoration.unlink(missing_ok=True)
    return findings


def _add_site(context: Any, docs_dir: Path) -> None:
    for existing in list(context.get_site_names()):
        context.delete_data_docs_site(existing)
    context.add_data_docs_site(
        _SITE,
        {
            "class_name": "SiteBuilder",
            "show_how_to_buttons": False,
            "store_backend": {"class_name": "TupleFilesystemStoreBackend", "base_directory": str(docs_dir.absolute())},
            "site_index_builder": {
                "class_name": "DefaultSiteIndexBuilder",
                "view": {**_VIEWS, "class_name": "IndexPageView"},
            },
            "site_section_builders": {
                "expectations": {"view": {**_VIEWS, "class_name": "PageView"}},
                "validations": {"view": {**_VIEWS, "class_name": "PageView"}},
                "profiling": "None",
            },
        },
    )


def _as_great_expectations(position: int, rule: Expectation) -> dict[str, Any]:
    """Return a rule as Great Expectations takes it; `position` comes back with its result."""
    return {
        "type": rule.type,
        "kwargs": rule.kwargs,
        "meta": {"notes": rule.meaning, "position": position},
        "severity": rule.severity,
    }


def _findings(check: Check, results: Sequence[Any]) -> list[Finding]:
    """Return what failed, in the suite's order (results come in another)."""
    by_position = {int(result.expectation_config.meta["position"]): result for result in results}
    findings: list[Finding] = []
    for position, rule in enumerate(check.suite.expectations):
        result = by_position[position]  # a rule that was not run is an error, not a success
        if not result.success:
            rows = int(result.result.get("unexpected_count") or 0)
            findings.append(Finding(check, rule, _found(result), rows, _example(check, result)))
    return findings


def _found(result: Any) -> str:
    """Say what was found: an observed value, a count of unexpected rows, or why nothing could be computed."""
    details = result.result
    if "observed_value" in details:
        return str(details["observed_value"])
    if "unexpected_count" in details:
        some = ", ".join(str(value) for value in details.get("partial_unexpected_list", [])[:3])
        return f"{details['unexpected_count']} of {details.get('element_count', '?')} rows otherwise ({some})"
    return f"that it cannot be computed: {_exception_message(result.exception_info)}"


def _exception_message(information: dict[str, Any]) -> str:
    for entry in (information, *(value for value in information.values() if isinstance(value, dict))):
        message = entry.get("exception_message")  # pyright: ignore[reportUnknownMemberType]
        if message:
            return str(message).strip()
    return "no reason given"


def _example(check: Check, result: Any) -> str:
    positions = result.result.get("partial_unexpected_index_list") or []
    if not positions or "row_id" not in check.projection.columns:
        return "-"
    return str(check.projection.get_column("row_id")[int(positions[0])])
