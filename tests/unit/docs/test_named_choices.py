"""Tables of docs/update.md: each choice of a setting has a row, and nothing else has one."""

import re
from collections.abc import Collection
from pathlib import Path
from typing import get_args

import pytest

from tasks.update.config import Aggregation
from tasks.update.doors import ADVANTAGE, CORRECTION, KL_ESTIMATOR, POLICY_LOSS

PAGE = (Path(__file__).parents[3] / "docs" / "update.md").read_text(encoding="utf-8")


def named(heading: str) -> set[str]:
    """Return the names in the first column of the first table below a heading of the page."""
    rows = re.findall(r"^\| (.*?) \|", PAGE.partition(f"\n{heading}\n")[2].partition("\n#")[0], re.MULTILINE)
    return set(re.findall(r"`(?:update\.correction\.weights: )?(\w+)`", " ".join(rows)))


@pytest.mark.parametrize(
    ("heading", "choices"),
    [
        ("### Advantages", ADVANTAGE.ours),
        ("### Losses", {*POLICY_LOSS.ours, *get_args(Aggregation)}),
        ("### KL", KL_ESTIMATOR.ours),
        ("### Corrections", CORRECTION.ours),
    ],
)
def test_each_choice_has_a_row(heading: str, choices: Collection[str]) -> None:
    assert named(heading) == set(choices)
