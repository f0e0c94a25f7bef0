"""The best answer of a problem is imitated wherever a conversation stood with less, with the gradient of its likelihood."""

from typing import Any

import polars as pl
import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tasks.training.batches import MicroBatch, TrainedSequence
from tasks.training.layout import Layout, part_of
from tasks.training.scoring import TokenScorer, score
from tasks.update.config import UpdateConfig
from tasks.update.credit_assignment import Sample
from tasks.update.dataset import make_samples
from tasks.update.imitation import best_answers, trained_answer
from tasks.update.precompute import Prepared
from tasks.update.step import optimizer_step
from tests.unit.update.test_invariance import log_probs, new_model


def turn(trajectory: str, index: int, reward: float, prompt: list[int], answer: list[int], **changes: Any) -> Any:
    row = {
        "trajectory_id": trajectory,
        "group_id": "a",
        "turn_index": index,
        "role": "solver",
        "prompt_token_ids": prompt,
        "response_token_ids": answer,
        "response_logprobs": [-0.1] * len(answer),
        "finish_reason": "stop",
        "verdict": {"status": "correct" if reward else "incorrect", "correct": reward > 0},
        "reward": reward,
        "return": reward,
        "termination": "turn_limit",
    }
    return row | changes


def pairs(*rows: Any) -> list[tuple[list[int], list[int]]]:
    found = best_answers(pl.DataFrame(rows, infer_schema_length=None))
    return [(row.token_ids[~row.trained].tolist(), row.token_ids[row.trained].tolist()) for row in found]


WRONG = turn("one", 0, 0.0, [1], [2])
MENDED = turn("one", 1, 1.0, [1, 2, 3], [4])
BEST = turn("two", 0, 1.5, [1], [5, 6])


def test_every_prompt_is_answered_with_the_best_answer_once():
    again = turn("three", 0, 0.0, [1], [7])
    assert pairs(WRONG, MENDED, BEST, again) == [([1], [5, 6]), ([1, 2, 3], [5, 6])]


def test_a_turn_that_was_given_as_good_a_kernel_is_left_out():
    further = turn("two", 1, 0.0, [1, 5, 6], [8])
    slightly_worse = turn("three", 0, 1.48, [1], [9])
    after = turn("three", 1, 0.0, [1, 9], [2])
    assert pairs(BEST, further, slightly_worse, after) == [([1], [5, 6])]


def test_without_a_correct_answer_nothing_is_imitated():
    assert pairs(WRONG, turn("two", 0, 0.0, [1], [5])) == []


def test_problems_and_agents_learn_from_their_own_answers():
    other = turn("four", 0, 2.0, [11], [12], group_id="b")
    tester = turn("two", 1, 0.0, [1, 5], [13], role="tester")
    assert pairs(WRONG, BEST, other, tester) == [([1], [5, 6]), ([11], [12])]


def test_a_batch_has_answers_to_imitate_only_where_they_are_asked_for():
    table = pl.DataFrame([WRONG, MENDED, BEST], infer_schema_length=None)
    assert make_samples(table, UpdateConfig(), vocabulary=20).imitated == ()
    assert len(make_samples(table, UpdateConfig(imitation=0.1), vocabulary=20).imitated) == 2


class OneProcess:
    """An engine of one rank whose step keeps the gradients."""

    world_size, device = 1, torch.device("cpu")

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        self.last: list[bool] = []

    def micro_batches(self, sequences: list[TrainedSequence], token_budget: int) -> list[MicroBatch]:
        layout = Layout(token_budget)
        return [layout.make(sequences, part_of([place])) for place in range(len(sequences))]

    def score(self, batch: MicroBatch) -> Any:
        return score(TokenScorer(self.model), batch)

    def sum_over_ranks(self, sums: Tensor) -> Tensor:
        return sums

    def backward(self, loss: Tensor, *, last: bool) -> None:
        self.last.append(last)
        loss.backward()

    def step(self, learning_rate: float) -> float:
        return 0.0


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_gradient_is_that_of_the_mean_negative_log_likelihood(weight: float):
    sequence = trained_answer([3, 4, 5], [6, 7])
    imitated = [trained_answer([8, 9], [10, 11, 12]), trained_answer([13], [14])]
    none = torch.zeros(2)
    sample = Sample(0.0, ("a", 0, "solver"), "a", sequence, none.numpy(), 0.0)
    prepared = Prepared([none], [none], None, None, None, corrected=False, mismatch=None)
    config = UpdateConfig(kl_coefficient=0, entropy_coefficient=0, imitation=weight)
    engine: Any = OneProcess(new_model())
    figures = optimizer_step(engine, None, config, [sample], [0], prepared, 0.0, 2, 1.0, imitated if weight else [])
    exact = new_model().double()
    likelihood = torch.cat([log_probs(exact, each)[0] for each in imitated]).mean()
    (-weight * likelihood).backward()
    likelihood = likelihood.detach()
    assert ("imitation_loss" in figures) == (weight > 0)
    assert figures.get("imitation_loss", -float(likelihood)) == pytest.approx(-float(likelihood), abs=1e-5)
    assert engine.last == ([False, False, True] if weight else [True])
    for (name, found), wanted in zip(engine.model.named_parameters(), exact.parameters(), strict=True):
        assert found.grad is not None
        torch.testing.assert_close(found.grad.double(), wanted.grad, atol=1e-6, rtol=1e-5, msg=name)
