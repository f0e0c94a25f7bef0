"""Launches of autotuned kernels as the tracing process records them, in the configurations that the judge names."""

from typing import Any

import pytest
import torch
import triton
from triton.runtime.interpreter import InterpretedFunction

from kernels_eval.interpreter.triton_patches import autotuner
from kernels_eval.tracing.autotuning import Autotuning

SIZES = (64, 128, 256)


class Tuned:
    """An autotuned kernel whose launches note what the recorder would write into the program."""

    arg_names = ("x", "n", "BLOCK")

    def __init__(self, tuning: Autotuning, **settings: Any) -> None:
        self._tuning = tuning
        self.noted: list[dict[str, Any] | None] = []
        configs = [triton.Config({"BLOCK": size}, num_warps=2) for size in settings.pop("sizes", SIZES)]
        self.launch: Any = triton.autotune(configs, key=["n"], **settings)(self)  # pyright: ignore[reportArgumentType]

    @staticmethod
    def fn() -> None: ...

    def run(self, x: Any, n: int, *, BLOCK: int, **_: Any) -> None:
        self.noted.append(self._tuning.current and {**self._tuning.current, "block": BLOCK})

    def places(self, n: int = 7) -> list[int]:
        """Launch it, and return the places of the configurations that were launched."""
        self.noted.clear()
        self.launch[(1,)](torch.zeros(1), n)
        return [noted["used"] for noted in self.noted if noted]


@pytest.fixture
def tuning(monkeypatch: pytest.MonkeyPatch) -> Autotuning:
    for name in ("run", "_bench"):
        monkeypatch.setattr(autotuner._autotuner, name, getattr(autotuner._autotuner, name))
    monkeypatch.setattr(InterpretedFunction, "run", InterpretedFunction.run)
    made = Autotuning()
    made.install()
    return made


def test_without_a_choice_the_first_configuration_is_launched(tuning: Autotuning) -> None:
    kernel = Tuned(tuning)
    assert kernel.places() == [0]
    (noted,) = kernel.noted
    assert noted is not None
    assert noted["name"].startswith("BLOCK: 64, num_warps: 2")
    assert {name: noted[name] for name in ("tuner", "kept", "is_trial", "block")} == {
        "tuner": 0, "kept": [0, 1, 2], "is_trial": False, "block": 64,
    }  # fmt: skip
    assert tuning.current is None, "other launches are not autotuned"


def test_each_autotuner_gets_the_configuration_that_is_named_for_it(tuning: Autotuning) -> None:
    first, second = Tuned(tuning), Tuned(tuning)
    tuning.begin({"0": 2, "1": 1}, {})
    assert (first.places(), second.places(), first.places()) == ([2], [1], [2])
    tuning.begin({}, {})
    assert (first.places(), second.places()) == ([0], [0])


def test_a_tried_configuration_is_launched_first_and_marked(tuning: Autotuning) -> None:
    kernel = Tuned(tuning)
    tuning.begin({"0": 1}, {"0": 2})
    assert kernel.places() == [2, 1]
    assert [noted and noted["is_trial"] for noted in kernel.noted] == [True, False]


def test_a_configuration_that_pruning_drops_is_replaced_by_the_first_that_it_keeps(tuning: Autotuning) -> None:
    def prune(configs: list[Any], given: dict[str, Any], **_: Any) -> list[Any]:
        return [config for config in configs if config.kwargs["BLOCK"] <= given["n"]]

    kernel = Tuned(tuning, prune_configs_by={"early_config_prune": prune})
    tuning.begin({"0": 2}, {"0": 2})
    assert kernel.places(n=256) == [2, 2]
    assert kernel.places(n=128) == [0]
    assert [noted and noted["kept"] for noted in kernel.noted] == [[0, 1]]
    assert kernel.places(n=64) == [0], "that one alone is left is worth knowing"


def test_configurations_that_pruning_makes_have_places_of_their_own(tuning: Autotuning) -> None:
    kernel = Tuned(
        tuning,
        prune_configs_by={"early_config_prune": lambda configs, *_, **__: [triton.Config({"BLOCK": 8}), configs[1]]},
    )
    assert kernel.places() == [3]
    tuning.begin({"0": 1}, {})
    assert kernel.places() == [1]


def test_a_single_configuration_is_no_choice(tuning: Autotuning) -> None:
    kernel = Tuned(tuning, sizes=(64,))
    tuning.begin({}, {"0": 0})
    kernel.places()
    assert kernel.noted[-1] is None
