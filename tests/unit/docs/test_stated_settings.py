"""Tables of settings in pages: they name every field of a configuration, its default, and if one kernel may change it."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from kernels_eval.config import CHANGEABLE, JudgeConfig
from tasks.rollout.config import EpisodeConfig

DOCS = Path(__file__).parents[3] / "docs"
WORDS: dict[str, Any] = {"none": None, "true": True, "false": False, "()": (), "{}": {}, "": ...}


def stated(page: str, header: str) -> dict[str, tuple[str, bool]]:
    """Return what the table below a header states of each setting: its default, and if it has a star."""
    table = (DOCS / page).read_text(encoding="utf-8").partition(header)[2].partition("\n\n")[0]
    found: dict[str, tuple[str, bool]] = {}
    for line in table.strip().splitlines()[1:]:
        names, defaults = (cell.strip() for cell in line.strip("|").split("|")[:2])
        each = re.findall(r"`([\w.*]+)`( \*)?", names)
        values = defaults.split(", ") if len(each) > 1 else [defaults]
        values += [""] * (len(each) - len(values))
        found |= {name: (value.strip("`"), bool(star)) for (name, star), value in zip(each, values, strict=True)}
    return found


def fields(model: type[BaseModel], prefix: str = "") -> dict[str, Any]:
    """Return the default of each setting by its dotted name."""
    made = model()
    values = {name: getattr(made, name) for name in type(made).model_fields}
    groups = {name: value for name, value in values.items() if isinstance(value, BaseModel)}
    inner = [fields(type(value), f"{name}.") for name, value in groups.items()]
    flat = {prefix + name: value for name, value in values.items() if name not in groups}
    return flat | {name: value for group in inner for name, value in group.items()}


def agrees(text: str, value: Any) -> bool:
    if text in WORDS:
        return WORDS[text] in (..., value)
    found = value[0] if isinstance(value, tuple) and len(value) == 1 else value
    return float(text) == found if isinstance(found, (int, float)) else text == found


@pytest.mark.parametrize(
    ("page", "header", "model"),
    [
        ("judge.md", "| | default | |\n", JudgeConfig),
        ("rollouts.md", "| setting (`rollout.episode.`) | default | |\n", EpisodeConfig),
    ],
)
def test_a_page_names_every_setting_with_its_default(page: str, header: str, model: type[BaseModel]) -> None:
    said, real = stated(page, header), fields(model)
    groups = tuple(name.removesuffix("*") for name in said if name.endswith("*"))
    assert {name for name in real if name not in said and not (groups and name.startswith(groups))} == set()
    assert {name for name in said if name not in real and not name.endswith("*")} == set()
    assert {name: text for name, (text, _) in said.items() if name in real and not agrees(text, real[name])} == {}


def test_stars_mark_what_one_kernel_may_change() -> None:
    said = stated("judge.md", "| | default | |\n")
    assert {name for name, (_, star) in said.items() if star} == set(CHANGEABLE)
