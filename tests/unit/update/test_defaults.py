"""Defaults of clip ranges and corrections live in the functions' signatures; the settings say the same."""

import inspect
import re

import pytest
import torch

from tasks.update import corrections, losses
from tasks.update.config import CorrectionConfig, UpdateConfig
from tasks.update.objective import policy_loss

LOSSES = ("ppo_clip", "gspo", "cispo", "dppo")


def default(function: object, name: str) -> float:
    return inspect.signature(function).parameters[name].default  # pyright: ignore


@pytest.mark.parametrize("bound", ["clip_low", "clip_high"])
def test_the_settings_name_each_loss_and_its_own_range(bound: str) -> None:
    said = dict(re.findall(r"(\w+) (\d[\d.e-]*\d)", UpdateConfig.model_fields[bound].description or ""))
    assert {name: float(value) for name, value in said.items()} == {
        name: default(getattr(losses, name), bound) for name in LOSSES
    }


@pytest.mark.parametrize("name", LOSSES)
def test_a_range_that_is_not_set_is_the_losses_own_and_one_that_is_set_holds(name: str) -> None:
    old, mask = torch.full((2, 3), -1.0), torch.ones(2, 3)
    # Each token's probability moved a little the way that its advantage pushes: a narrow range binds, a loss's own does not.
    new, advantage = old + torch.tensor([[0.1, 0.01, 0.001], [-0.1, -0.01, -0.001]]), torch.tensor([[1.0], [-1.0]])
    function = getattr(losses, name)
    arguments = (new, old, advantage, *((mask,) if name == "gspo" else ()))
    unset, _ = policy_loss(new, old, advantage, mask, UpdateConfig(policy_loss=name))
    assert torch.equal(unset, function(*arguments)[0])
    narrow = UpdateConfig(policy_loss=name, clip_low=1e-5, clip_high=2e-5)
    found, _ = policy_loss(new, old, advantage, mask, narrow)
    assert torch.equal(found, function(*arguments, clip_low=1e-5, clip_high=2e-5)[0])
    assert not torch.equal(found, unset)


@pytest.mark.parametrize(("weights", "bounds"), [("token_tis", (0.0, 2.0)), ("icepop", (0.5, 5.0))])
def test_the_bounds_of_a_correction(weights: str, bounds: tuple[float, float]) -> None:
    trainer, sampler, mask = torch.tensor([[0.0, -1.0, -3.0]]), torch.tensor([[-3.0, -1.2, -1.0]]), torch.ones(1, 3)
    unset = CorrectionConfig(weights=weights, veto=None)  # pyright: ignore[reportArgumentType]
    written = unset.model_copy(update={"lower": bounds[0], "upper": bounds[1]})
    found = corrections.correction(trainer, sampler, mask, unset).weights
    assert torch.equal(found, corrections.correction(trainer, sampler, mask, written).weights)
    other = corrections.correction(trainer, sampler, mask, unset.model_copy(update={"upper": 1.1})).weights
    assert not torch.equal(found, other)
