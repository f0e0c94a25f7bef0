"""Triton's autotuner with its measuring replaced: hooks, pruning and attributes stay as the installed release has them."""

import contextlib
from collections.abc import Generator
from typing import Any

import pytest
import triton

from kernels_eval.interpreter.triton_patches import autotuner
from kernels_eval.interpreter.triton_patches.autotuner import Choice, replace_autotuner

CONFIGS = [triton.Config({"BLOCK": size}) for size in (64, 128, 256)]


class Kernel:
    """Stand-in for a jit function that notes its launches and the content of its tensor."""

    arg_names = ("x", "n", "BLOCK")

    def __init__(self) -> None:
        self.launched: list[tuple[int, int]] = []

    @staticmethod
    def fn() -> None: ...

    def run(self, x: "Cell", n: int, *, BLOCK: int, **_: Any) -> str:
        x.value += 1
        self.launched.append((BLOCK, x.value))
        return f"launched {BLOCK}"


class Cell:
    """Stand-in for a tensor of one element."""

    def __init__(self, value: int) -> None:
        self.value = value

    def zero_(self) -> None:
        self.value = 0

    def clone(self) -> "Cell":
        return Cell(self.value)

    def copy_(self, other: "Cell") -> None:
        self.value = other.value


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back what a test replaces in Triton."""
    for name in ("run", "_bench"):
        monkeypatch.setattr(autotuner._autotuner, name, getattr(autotuner._autotuner, name))


@pytest.fixture
def watched() -> list[tuple[int, bool]]:
    return []


def install(final: int, tried: list[int], watched: list[tuple[int, bool]]) -> None:
    """Launch the configurations at these places among those that are kept."""

    @contextlib.contextmanager
    def watch(tuner: Any, kept: Any, config: Any, is_trial: bool) -> Generator[None]:
        watched.append((config.kwargs["BLOCK"], is_trial))
        yield

    replace_autotuner(lambda tuner, kept: Choice(kept[final], [kept[place] for place in tried]), watch)


def tuned(kernel: Kernel, **settings: Any) -> Any:
    return triton.autotune(CONFIGS, key=["n"], **settings)(kernel)  # pyright: ignore[reportArgumentType]


def test_the_chosen_configuration_alone_is_launched(watched: list[tuple[int, bool]]) -> None:
    kernel = Kernel()
    install(1, [], watched)
    launcher = tuned(kernel, reset_to_zero=["x"])
    x = Cell(5)
    assert launcher[(1,)](x, 7) == "launched 128"
    assert kernel.launched == [(128, 6)], "nothing is reset where nothing was tried, as in a later call on a GPU"
    assert launcher.best_config is CONFIGS[1]
    assert watched == [(128, False)]


def test_outputs_are_left_as_a_tried_configuration_made_them(watched: list[tuple[int, bool]]) -> None:
    kernel = Kernel()
    install(0, [2], watched)
    tuned(kernel)[(1,)](Cell(0), 7)
    assert kernel.launched == [(256, 1), (64, 2)]
    assert watched == [(256, True), (64, False)]


def test_outputs_are_reset_where_the_decorator_says_so(watched: list[tuple[int, bool]]) -> None:
    kernel = Kernel()
    install(0, [1, 2], watched)
    tuned(kernel, reset_to_zero=["x"])[(1,)](Cell(9), 7)
    assert kernel.launched == [(128, 1), (256, 1), (64, 1)]


def test_outputs_are_restored_where_the_decorator_says_so(watched: list[tuple[int, bool]]) -> None:
    kernel = Kernel()
    install(0, [1, 2], watched)
    tuned(kernel, restore_value=["x"])[(1,)](Cell(9), 7)
    assert kernel.launched == [(128, 10), (256, 10), (64, 10)]


def test_pruning_and_the_hooks_of_configurations_are_the_candidates(watched: list[tuple[int, bool]]) -> None:
    kernel = Kernel()
    install(0, [], watched)
    hooked = triton.Config({"BLOCK": 32}, pre_hook=lambda given: given["x"].zero_())
    prune = {"early_config_prune": lambda configs, given, **_: [hooked] if given["n"] > 3 else configs}
    launcher = tuned(kernel, prune_configs_by=prune)
    launcher[(1,)](Cell(5), 7)
    launcher[(1,)](Cell(5), 2)
    assert kernel.launched == [(32, 1), (64, 6)]


def test_a_class_with_a_run_of_its_own_measures_nothing(watched: list[tuple[int, bool]]) -> None:
    class Own(autotuner._autotuner):
        original = autotuner._autotuner.run

        def run(self, *args: Any, **kwargs: Any) -> Any:
            return Own.original(self, *args, **kwargs)

    kernel = Kernel()
    install(2, [], watched)
    launcher = Own(kernel, kernel.arg_names, CONFIGS, ["n"], None, None)
    launcher[(1,)](Cell(0), 7)
    assert kernel.launched == [(64, 1)]
