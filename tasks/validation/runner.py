"""Runs suites on projections with Great Expectations and writes its Data Docs.

The only module that imports Great Expectations (four seconds, 290 MB): `checks` imports it when it validates. A
projection becomes a pandas frame of Arrow-backed columns. The pages need no internet (`offline_pages`).

The views compile Great Expectations' templates once a process, which by default are compiled again for each kind of
page: 0.1 of the 0.7 s that the checks of a batch take.
"""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket

from tasks.validation.offline_pages import make_offline
from tasks.validation.suite import Check, Expectation, Finding

os.environ.setdefault("GX_ANALYTICS_ENABLED", "false")  # read by the import
import great_expectations as gx
from great_expectations.render.view.view import DefaultJinjaIndexPageView, DefaultJinjaPageView


class _CompiledTemplates(BytecodeCache):
    """Compiled templates by name and content, in memory."""

    def __init__(self) -> None:
        self._compiled: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Load a template's bytecode, if it is cached."""
        if bucket.key in self._compiled:
            bucket.bytecode_from_string(self._compiled[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Store a template's bytecode."""
        self._compiled[bucket.key] = bucket.bytecode_to_string()


_COMPILED = _CompiledTemplates()


class _CompiledOnce:
    """Mixin for a view of Great Expectations."""

    env: Environment

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.env.bytecode_cache = _COMPILED
        self.env.auto_reload = False  # the package's files do not change while it runs


class PageView(_CompiledOnce, DefaultJinjaPageView):
    """View of a suite, or of a validation's results."""


class IndexPageView(_CompiledOnce, DefaultJinjaIndexPageView):
    """View of the list of all pages."""


_SITE = "data_docs"
_VIEWS = {"module_name": "tasks.validation.runner"}
_DECORATION = (
    "images/glossary_scroller.gif",
    "images/validation_failed_unexpected_values.gif",
    "images/iterative-dev-loop.png",
    "fonts",
)
"""Pictures of a product tour, and a font: 4.0 of each site's 4.1 MB. Pages fall back to the system's font."""


class Checks:
    """Great Expectations for one artifact: suites run one after another, and all of their results become pages."""

    def __init__(self, docs_dir: Path) -> None:
        """`docs_dir`: folder of the pages (`index.html`); what is there goes."""
        self._context = gx.get_context(mode="ephemeral")
        self._context.variables.progress_bars = {"globally": False}  # pyright: ignore[reportAttributeAccessIssue]
        shutil.rmtree(docs_dir, ignore_errors=True)
        _add_site(self._context, docs_dir)
        self._source = self._context.data_sources.add_pandas("tables")
        self._docs_dir = docs_dir
        self._passed: dict[str, bool] = {}

    def run(self, checks: Sequence[Check]) -> list[Finding]:
        """Run checks; return the failures in the suites' order."""
        findings: list[Finding] = []
        for check in checks:
            name = f"{check.suite.name}_{check.data}"
            rules = [_as_great_expectations(position, rule) for position, rule in enumerate(check.suite.expectations)]
            expectations = gx.ExpectationSuite(name=name, expectations=rules)  # pyright: ignore[reportArgumentType]
            suite = self._context.suites.add(expectations)
            batch = self._source.add_dataframe_asset(name).add_batch_definition_whole_dataframe("all")
            definition = self._context.validation_definitions.add(
                gx.ValidationDefinition(name=name, data=batch, suite=suite)
            )
            result = definition.run(
                batch_parameters={"dataframe": check.projection.to_pandas(use_pyarrow_extension_array=True)},
                result_format={"result_format": "COMPLETE", "partial_unexpected_count": 5},
            )
            findings += _findings(check, result.results)
            self._passed[name] = bool(result.success)
        return findings

    def write_pages(self) -> None:
        """Write Data Docs of everything that was run."""
        self._context.build_data_docs(site_names=[_SITE])
        for name in _DECORATION:
            decoration = self._docs_dir / "static" / name
            if decoration.is_dir():
                shutil.rmtree(decoration)
            else:
                decoration.unlink(missing_ok=True)
        make_offline(self._docs_dir, self._passed)


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
    """Return a rule in the form of Great Expectations; its result carries `position`."""
    return {
        "type": rule.type,
        "kwargs": rule.kwargs,
        "meta": {"notes": rule.meaning, "position": position},
        "severity": rule.severity,
    }


def _findings(check: Check, results: Sequence[Any]) -> list[Finding]:
    """Return the failures in the suite's order (results come in another)."""
    by_position = {int(result.expectation_config.meta["position"]): result for result in results}
    findings: list[Finding] = []
    for position, rule in enumerate(check.suite.expectations):
        result = by_position[position]  # a rule that was not run is an error, not a success
        if not result.success:
            places = tuple(sorted(int(place) for place in result.result.get("unexpected_index_list") or []))
            findings.append(Finding(check, rule, _found(result), places))
    return findings


def _found(result: Any) -> str:
    """Return what was found: an observed value, a count of unexpected rows, or why nothing could be computed."""
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
