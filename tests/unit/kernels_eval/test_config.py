"""Settings for one kernel alone."""

from typing import Any

import pytest

from kernels_eval.config import CHANGEABLE, JudgeConfig, changes_between, with_settings
from kernels_eval.errors import InputError

CONFIG = JudgeConfig(timeout_s=5.0)


def test_nothing_said_is_the_judges_own() -> None:
    assert with_settings(CONFIG, None, {}) is CONFIG


@pytest.mark.parametrize(
    ("name", "value"),
    [("trials", 3), ("timeout_s", 1.5), ("policy", "mixed"), ("targets", ["cuda:80"]), ("compile", "never"), ("backend", "cuda")],
)  # fmt: skip
def test_what_may_be_changed(name: str, value: Any) -> None:
    changed = with_settings(CONFIG, None, {name: value})
    assert getattr(changed, name) == (tuple(value) if isinstance(value, list) else value)
    assert changed.model_copy(update={name: getattr(CONFIG, name)}) == CONFIG
    assert name in CHANGEABLE


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"trials": 0}, "trials"),
        ({"trials": "many"}, "found 'many'"),
        ({"timeout_s": 6.0}, "timeout_s: expected at most 5, found 6"),
        ({"timeout_s": float("nan")}, "timeout_s"),
        ({"memory_mb": 1 << 20}, "memory_mb: expected one of"),
        ({"cache_dir": "/etc"}, "cache_dir"),
        ({"require_sandbox": False}, "require_sandbox"),
        ({"workers": 100}, "workers"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
def test_what_may_not(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        with_settings(CONFIG, None, settings)


@pytest.mark.parametrize("changed", [{}, {"compile": "never", "compile_share": 0.1}, {"timeout_s": 2.0, "trials": 3}])
def test_changes_lead_from_one_configuration_to_the_other(changed: dict[str, Any]) -> None:
    wanted = CONFIG.model_copy(update=changed)
    assert changes_between(CONFIG, wanted) == changed
    assert with_settings(CONFIG, None, changed) == wanted


@pytest.mark.parametrize("changed", [{"memory_mb": 4096}, {"workers": 9}, {"cache_dir": "x"}, {"timeout_s": 6.0}])
def test_other_changes_need_another_judge(changed: dict[str, Any]) -> None:
    assert changes_between(CONFIG, CONFIG.model_copy(update={"trials": 3, **changed})) is None


@pytest.mark.parametrize(
    ("targets", "precision"),
    [
        (["cuda:90"], "tf32"),
        (["cuda:80", "hip:gfx90a"], "tf32"),
        (["cuda:100"], "tf32"),
        (["cuda:75"], "ieee"),
        (["hip:gfx950", "hip:gfx90a"], "ieee"),
        (["hip:gfx942"], "tf32"),
        ([], "tf32"),
    ],
)
def test_products_of_float32_are_as_precise_as_the_targets_that_round_most(targets: list[str], precision: str) -> None:
    assert JudgeConfig(targets=tuple(targets)).dot_precision == precision
