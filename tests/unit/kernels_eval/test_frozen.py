"""The decisive part of a model: operational fields left out at every depth, files by what the caller makes of their name."""

import json
from typing import Annotated

from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from kernels_eval.config import JudgeConfig
from kernels_eval.frozen import FileContent, FrozenModel, Operational, decisive_part, normalised


class Inner(FrozenModel):
    kept: int = 1
    workers: Annotated[int, Operational] = Field(default=2, ge=1)


class Rate(FrozenModel):
    rate: float = 1


class Outer(FrozenModel):
    inner: Inner = Inner()
    maybe: Inner | None = None
    path: Annotated[str | None, FileContent] = None
    where: Annotated[Inner, Operational] = Inner()


def test_operational_fields_are_left_out_at_every_depth():
    value = Outer(maybe=Inner(kept=4), path="here")
    assert decisive_part(value) == {
        "inner": {"kept": 1},
        "maybe": {"kept": 4},
        "path": "here",
    }


def test_the_caller_says_what_stands_for_a_file():
    asked: list[str] = []

    def content(name: str) -> int:
        asked.append(name)
        return len(name)

    assert decisive_part(Outer(path="here"), content)["path"] == 4
    assert decisive_part(Outer(), content)["path"] is None
    assert asked == ["here"]


def test_a_default_written_as_an_integer_counts_like_the_same_value_read_from_a_file():
    read = Rate.model_validate_json('{"rate": 1.0}')
    assert repr(decisive_part(read)) == repr(decisive_part(Rate()))


@given(st.recursive(st.floats(-1e6, 1e6) | st.integers(-9, 9) | st.booleans() | st.none() | st.text(), st.lists))
def test_equal_values_look_equal(value: object):
    """As a browser's form writes numbers: whole ones without a point; and as a file may: all with one."""

    def written(item: object, number: type) -> object:
        if isinstance(item, list):
            return [written(each, number) for each in item]
        whole = isinstance(item, int | float) and not isinstance(item, bool) and item == int(item)
        return number(item) if whole else item

    looks = {json.dumps(normalised(each)) for each in (value, written(value, int), written(value, float))}
    assert len(looks) == 1
    assert normalised(value) == value


@given(st.integers(), st.integers(1), st.integers(1))
def test_a_bound_beside_the_mark_still_holds_and_the_mark_too(kept: int, workers: int, other: int):
    assert decisive_part(Inner(kept=kept, workers=workers)) == decisive_part(Inner(kept=kept, workers=other))
    assert decisive_part(Inner(kept=kept)) != decisive_part(Inner(kept=kept + 1))


def test_what_of_the_judge_s_settings_cannot_change_a_verdict():
    operational = set(JudgeConfig.model_fields) - set(decisive_part(JudgeConfig()))
    assert operational == {
        "workers", "cache_dir", "cache_mb", "require_sandbox", "device_memory_gb", "compile_ahead",
    }  # fmt: skip
