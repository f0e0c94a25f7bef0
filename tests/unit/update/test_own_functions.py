"""Functions of the user's own in an update: estimator, loss, divergence, correction, credit."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

from kernels_eval import sources
from kernels_eval.errors import InputError
from kernels_eval.frozen import decisive_part, with_source
from tasks.trajectories.returns import credited
from tasks.update.config import CorrectionConfig, UpdateConfig
from tasks.update.corrections import correction
from tasks.update.credit_assignment import Score, turn_advantages
from tasks.update.doors import ADVANTAGE, names_that_compare
from tasks.update.kl import kl_penalty
from tasks.update.objective import policy_loss

OWN = """
from tasks.update.doors import estimator

@estimator(compares="turns")
def over_mean(scores, groups, mask):
    return (scores - scores.mean()) * mask

@estimator(compares="trajectories")
def best(scores, groups, mask):
    return (scores == scores.max()).double()[:, None] * mask

@estimator(compares="turns")
def narrow(scores, groups, mask):
    return scores[:, :1][:0]

def plain(scores, groups, mask):
    return scores

def reinforce(log_probs, old_log_probs, advantages, mask, settings):
    return -advantages * log_probs

def absolute(log_probs, reference_log_probs):
    return (log_probs - reference_log_probs).abs()

def half(log_probs, sampler_log_probs, mask, settings):
    return 0.5 * mask

def scalar(log_probs, reference_log_probs):
    return 1.0

def last(rewards, discount):
    return [rewards[-1]] * len(rewards)

def shorter(rewards, discount):
    return rewards[1:]
"""
TURNS = [Score(1.0, ("p", 0, "solver"), "a"), Score(3.0, ("p", 1, "solver"), "a"), Score(2.0, ("p", 0, "solver"), "b")]


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "own_update.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    importlib.invalidate_caches()
    sources.forget()
    yield tmp_path
    sys.modules.pop("own_update", None)
    sources.forget()


def test_an_estimator_is_called_with_what_it_declares_to_compare() -> None:
    config = UpdateConfig(advantage="own_update:over_mean")
    assert config.estimator.compares == "turns"
    assert turn_advantages(TURNS, config.estimator).tolist() == [-0.5, 1.5, 0.5], "zeros stand for turns not played"
    assert turn_advantages(TURNS, UpdateConfig(advantage="own_update:best").estimator).tolist() == [1, 1, 0]


def test_what_is_no_estimator_is_refused() -> None:
    with pytest.raises(InputError, match=r"own_update:plain: expected a function declared with .*, found a function"):
        ADVANTAGE.verify("own_update:plain")
    with pytest.raises(InputError, match=r"own_update:narrow returned the shape \(0, 1\), expected .* \(2, 2\)"):
        turn_advantages(TURNS, ADVANTAGE.load("own_update:narrow"))


def test_loss_divergence_and_correction_are_called_with_one_number_a_token() -> None:
    tokens, mask = torch.full((2, 3), -0.5), torch.ones(2, 3)
    loss, figures = policy_loss(tokens, tokens, mask, mask, UpdateConfig(policy_loss="own_update:reinforce"))
    assert loss.tolist() == (-tokens).tolist()
    assert figures == {}
    assert kl_penalty(tokens, tokens - 1, "own_update:absolute").tolist() == mask.tolist()
    settings = CorrectionConfig(weights="own_update:half", veto=None)
    assert correction(tokens, tokens, mask, settings).weights.tolist() == (0.5 * mask).tolist()
    with pytest.raises(
        InputError, match=r"own_update:scalar returned float, expected a number for each token, \(2, 3\)"
    ):
        kl_penalty(tokens, tokens, "own_update:scalar")


def test_a_credit_of_your_own() -> None:
    assert credited([0.1, None, 2.0], "own_update:last", 0.9) == [2.0, 2.0, 2.0]
    assert credited([0.1, None, 2.0], "own_update:last", 0.9, stopped=True) == [2.0, 2.0, 2.0]
    with pytest.raises(InputError, match="own_update:shorter returned 1 values for 2 turns"):
        credited([0.1, 2.0], "own_update:shorter", 0.9)


def test_its_source_is_part_of_the_updates_key(own: Path) -> None:
    config = UpdateConfig(advantage="own_update:best")
    before = decisive_part(config, of_code=with_source)
    (own / "own_update.py").write_text(OWN.replace("scores.max()", "scores.min()"))
    sources.forget()
    after = decisive_part(config, of_code=with_source)
    assert {name for name in after if after[name] != before[name]} == {"advantage"}


def test_an_estimators_name_stands_in_its_own_file_only() -> None:
    """But for the default of the setting, and the formulas that are called like estimators."""
    root = Path(__file__).parents[3]
    formulas = {root / "tasks" / "update" / name for name in ("advantages.py", "config.py")}
    names = [f'"{name}"' for name in ADVANTAGE.ours]
    assert len(names) == 7
    assert set(names_that_compare("turns")) == {"turn_grpo", "turn_rloo"}
    for package in ("flows", "tasks"):
        for path in (root / package).rglob("*.py"):
            if path not in formulas:
                assert not [name for name in names if name in path.read_text(encoding="utf-8")], path
