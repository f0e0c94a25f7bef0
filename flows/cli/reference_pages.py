"""Writes docs/reference/*.md from the code (`python -m flows.cli.reference_pages`); a test compares them."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from flows.settings.configuration import RunConfig
from flows.settings.explanation import settings_group
from kernels_eval.frozen import Experimental

FOLDER = Path("docs/reference")
_MADE = "<!-- made by `python -m flows.cli.reference_pages`; do not edit -->\n\n"


def pages() -> dict[str, str]:
    """Return the text of each page by file name."""
    return {
        "commands.md": commands_page(),
        "settings.md": settings_page(),
        "registries.md": registries_page(),
        "verdicts.md": verdicts_page(),
    }


def commands_page() -> str:
    """Return the page of all commands with their arguments and options, as `typer utils docs` writes it."""
    from typer import Context
    from typer.cli import get_docs_for_click
    from typer.main import get_command

    from flows.cli.main import app

    command = get_command(app)
    return _MADE + get_docs_for_click(obj=command, ctx=Context(command), name="kernelmill", title="Commands")


def settings_page() -> str:
    """Return the page of all settings with type, default and description."""
    lines = [
        "# Settings",
        "",
        "A run's YAML file, or `--set a.b=value`. Settings that are not named have their default.",
    ]
    for prefix, model, is_experimental in _groups(RunConfig):
        name = prefix.rstrip(".") or "The run"
        lines += ["", f"## {name}{' (experimental)' if is_experimental else ''}", "", _text(model.__doc__ or "")]
        groups = dict(_children(model))
        fields = {name: field for name, field in model.model_fields.items() if name not in groups}
        marked = {name for name, field in fields.items() if Experimental in field.metadata}
        lines += _table(prefix, {name: field for name, field in fields.items() if name not in marked})
        if marked:
            lines += ["", "Experimental, or for replaying another framework's formula:"]
            lines += _table(prefix, {name: field for name, field in fields.items() if name in marked})
    return _MADE + "\n".join(lines) + "\n"


def _table(prefix: str, fields: Mapping[str, FieldInfo]) -> list[str]:
    lines = ["", "| setting | type | default | |", "|---|---|---|---|"]
    for name, field in fields.items():
        default = "" if field.default is PydanticUndefined else _cell(f"`{field.default!r}`")
        if field.default_factory is not None:
            default = "`{}`"
        cells = (f"`{prefix}{name}`", _cell(_type_text(field.annotation)), default, _text(field.description or ""))
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def registries_page() -> str:
    """Return the page of names that settings can have: rewards, terms, episode tasks, stages."""
    from kernels_eval.rewards import REWARDS, TERMS
    from tasks.pipeline.retries import STAGE_NAMES
    from tasks.rollout.config import EPISODE_TASK

    def table(registry: dict[str, Any]) -> list[str]:
        return [
            "| name | |",
            "|---|---|",
            *(f"| `{name}` | {_text(item.__doc__ or '')} |" for name, item in registry.items()),
        ]

    lines = ["# Rewards and stages", "", "## Rewards (`rollout.episode.reward`)", "", *table(dict(REWARDS))]
    lines += ["", "## Terms on the answer", "", *table(dict(TERMS))]
    lines += ["", "## Episode tasks (`rollout.episode.task`)", "", *(f"- `{name}`" for name in EPISODE_TASK.ours)]
    lines += ["", "## Stages (`--refresh`, `stages.timeouts_s`)", "", *(f"- `{name}`" for name in STAGE_NAMES), ""]
    return _MADE + "\n".join(lines)


def verdicts_page() -> str:
    """Return the page of the checks that a verdict consists of, in order, and of all error categories."""
    from kernels_eval.cpu.checks import CHECKS as WITHOUT_GPU
    from kernels_eval.error_categories import EXPLANATIONS
    from kernels_eval.gpu.candidate_run import CHECKS as ON_GPU

    lines = ["# Verdicts", "", "A kernel is correct if it passes all checks, in order; the first that fails decides."]
    for where, checks in (("without a GPU", WITHOUT_GPU), ("on a GPU", ON_GPU)):
        lines += ["", f"## Checks {where}", "", "The kernel", ""]
        lines += [f"{number}. {check.demand}" for number, check in enumerate(checks, start=1)]
    lines += ["", "## Error categories", "", "`kernelmill judge explain CATEGORY` prints a row of these tables."]
    for status in dict.fromkeys(each.status for each in EXPLANATIONS.values()):
        lines += ["", f"### `{status}`", "", "| category | meaning | usual cause | what to do |", "|---|---|---|---|"]
        lines += [
            f"| `{name}` | {_text(each.meaning)} | {_text(each.cause)} | {_text(each.remedy)} |"
            for name, each in EXPLANATIONS.items()
            if each.status is status
        ]
    return _MADE + "\n".join(lines) + "\n"


def _groups(
    model: type[BaseModel], prefix: str = "", is_experimental: bool = False
) -> Iterator[tuple[str, type[BaseModel], bool]]:
    """Yield the prefix and the model of each group of settings, and whether it is experimental."""
    yield prefix, model, is_experimental
    for name, below in _children(model):
        is_marked = Experimental in model.model_fields[name].metadata
        yield from _groups(below, f"{prefix}{name}.", is_experimental or is_marked)


def _children(model: type[BaseModel]) -> Iterator[tuple[str, type[BaseModel]]]:
    for name, field in model.model_fields.items():
        below = settings_group(field.annotation)
        if below is not None:
            yield name, below


def _type_text(annotation: Any) -> str:
    text = annotation.__name__ if isinstance(annotation, type) and not get_args(annotation) else str(annotation)
    text = re.sub(r"typing\.(Literal|Annotated|Any)", r"\1", text)
    text = re.sub(r"typing\.Optional\[(.*)\]$", r"\1 | None", text)
    text = re.sub(r"Annotated\[(\w+), .*?\)\]\)?\]", r"\1", text)
    text = re.sub(r"Annotated\[(\w+), [^\[\]]*\]", r"\1", text)
    return re.sub(r"Literal\[(.*?)\]", r"\1", text).replace("NoneType", "None")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _text(text: str) -> str:
    """Return text as one line for a table cell."""
    return _cell(" ".join(text.replace("\b", "").split()))


def main() -> None:
    """Write the pages."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
