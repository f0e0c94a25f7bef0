"""Training of the tester, and its folder: `tester.safetensors` and `tester.json` with its labels and figures."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from safetensors.torch import load_file, save_file

from extras.tester.examples import LABELS, Example
from extras.tester.figures import can_be_measured, chosen, figures_of
from extras.tester.network import VerdictNetwork
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from tasks.pipeline.store import publish

WEIGHTS_FILE, FACTS_FILE = "tester.safetensors", "tester.json"
_BATCH = 128
_RATE = 3e-3
_DECAY = 1e-4
_MOST_EPOCHS = 30
_PATIENCE = 4
"""Epochs without a better loss on the validation problems after which training ends."""
_VALIDATION_SHARE = 0.15
_DRAWS = (2, 4)


class FactsOfTester(FrozenModel):
    """Content of `tester.json`."""

    labels: tuple[str, ...]
    temperature: float
    """Divisor of the logits (Guo et al. 2017), fitted on the validation problems."""
    trained_on: int
    """Kernels."""
    figures: dict[str, Any] = Field(default_factory=dict[str, Any])
    """On kernels of problems that were held out, by label; `choice`: by number of draws."""


class TrainedTester:
    """A trained tester."""

    def __init__(self, network: VerdictNetwork, facts: FactsOfTester) -> None:
        self.network, self.facts = network.eval(), facts

    def probabilities(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        """Return the probability of each label, (pairs, labels), for (problem source, kernel source)."""
        with torch.no_grad():
            logits = torch.cat([self.network(pairs[at : at + _BATCH]) for at in range(0, len(pairs), _BATCH)])
        return torch.sigmoid(logits / self.facts.temperature)

    def correct(self, problem_source: str, kernels: Sequence[str]) -> list[float]:
        """Return the probability that each kernel is correct."""
        pairs = [(problem_source, kernel) for kernel in kernels]
        place = self.facts.labels.index("correct")
        return [float(value) for value in self.probabilities(pairs)[:, place]] if pairs else []


def train_tester(examples: Sequence[Example], heldout: Sequence[Example], seed: int = 0) -> TrainedTester:
    """Train on some kernels, and measure on those of other problems.

    Raises InputError if there are too few, or none that is wrong or right.
    """
    training, validation = _split(examples, seed)
    for kernels, what in ((training, "to train on"), (validation, "to stop by")):
        if not can_be_measured([example.correct for example in kernels]):
            correct = sum(example.correct for example in kernels)
            raise InputError(
                f"tester: found {len(kernels)} judged kernels {what}, {correct} of them correct; expected ten of each "
                "kind or more: collect more trajectories"
            )
    known = {example.problem_id for example in examples}
    heldout = [example for example in heldout if example.problem_id not in known]
    torch.manual_seed(seed)
    network = VerdictNetwork(len(LABELS))
    _fit(network, training, validation, seed)
    facts = FactsOfTester(labels=LABELS, temperature=1.0, trained_on=len(training))
    facts = facts.model_copy(update={"temperature": _temperature(TrainedTester(network, facts), validation)})
    facts = facts.model_copy(update={"figures": measure(TrainedTester(network, facts), heldout)})
    return TrainedTester(network, facts)


def measure(tester: TrainedTester, examples: Sequence[Example]) -> dict[str, Any]:
    """Return the figures of a tester on judged kernels, of every label of which there are enough."""
    if not examples:
        return {}
    guessed = tester.probabilities([(example.problem_source, example.kernel_source) for example in examples])
    found: dict[str, Any] = {}
    for place, label in enumerate(tester.facts.labels):
        known = [(float(guess), truth) for guess, example in zip(guessed[:, place], examples, strict=True)
                 if (truth := example.label(label)) is not None]  # fmt: skip
        if can_be_measured([truth for _, truth in known]):
            found[label] = figures_of([guess for guess, _ in known], [truth for _, truth in known])
    correct = guessed[:, tester.facts.labels.index("correct")].tolist()
    return {"labels": found, "choice": {str(draws): chosen(examples, correct, draws) for draws in _DRAWS}}


def save_tester(tester: TrainedTester, destination: Path) -> None:
    """Publish a tester as a folder."""
    with publish(destination, {"trained_on": tester.facts.trained_on}) as folder:
        save_file(tester.network.state_dict(), folder / WEIGHTS_FILE)
        (folder / FACTS_FILE).write_text(tester.facts.model_dump_json(indent=1) + "\n", encoding="utf-8")


def load_tester(folder: Path) -> TrainedTester:
    """Read a tester. Raises InputError if the folder is none."""
    try:
        facts = FactsOfTester.model_validate(json.loads((folder / FACTS_FILE).read_text(encoding="utf-8")))
        network = VerdictNetwork(len(facts.labels))
        network.load_state_dict(load_file(folder / WEIGHTS_FILE))
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{folder}: expected a tester of `kernelmill tester` ({FACTS_FILE}): {error}") from error
    return TrainedTester(network, facts)


def _split(examples: Sequence[Example], seed: int) -> tuple[list[Example], list[Example]]:
    """Return the kernels of most problems, and those of the others."""
    problems = sorted({example.problem_id for example in examples})
    random.Random(seed).shuffle(problems)
    others = set(problems[: max(1, round(_VALIDATION_SHARE * len(problems)))])
    return (
        [example for example in examples if example.problem_id not in others],
        [example for example in examples if example.problem_id in others],
    )


def _fit(network: VerdictNetwork, training: Sequence[Example], validation: Sequence[Example], seed: int) -> None:
    """Train until the loss on the validation problems gets no better; keeps the best weights."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=_RATE, weight_decay=_DECAY)
    drawn = random.Random(seed)
    order, best, best_loss, since = list(training), None, float("inf"), 0
    for _ in range(_MOST_EPOCHS):
        network.train()
        drawn.shuffle(order)
        for at in range(0, len(order), _BATCH):
            optimizer.zero_grad()
            _loss(network, order[at : at + _BATCH]).backward()
            optimizer.step()
        network.eval()
        with torch.no_grad():
            loss = float(_loss(network, validation))
        since += 1
        if loss < best_loss:
            best, best_loss, since = {name: value.clone() for name, value in network.state_dict().items()}, loss, 0
        if since >= _PATIENCE:
            break
    assert best is not None
    network.load_state_dict(best)


def _loss(network: VerdictNetwork, examples: Sequence[Example]) -> torch.Tensor:
    """Return the mean binary cross-entropy over the labels that the verdicts say."""
    logits = network([(example.problem_source, example.kernel_source) for example in examples])
    truths = [[example.label(label) for label in LABELS] for example in examples]
    known = torch.tensor([[truth is not None for truth in row] for row in truths])
    wanted = torch.tensor([[float(truth or 0) for truth in row] for row in truths])
    return torch.nn.functional.binary_cross_entropy_with_logits(logits[known], wanted[known])


def _temperature(tester: TrainedTester, validation: Sequence[Example]) -> float:
    """Return the divisor of the logits with which the probabilities of `correct` fit best."""
    place = LABELS.index("correct")
    guessed = tester.probabilities([(example.problem_source, example.kernel_source) for example in validation])
    logits = torch.logit(guessed[:, place].double(), eps=1e-9)
    truths = torch.tensor([float(example.correct) for example in validation], dtype=torch.float64)
    tried = [0.5 * 1.1**step for step in range(31)]
    losses = [
        float(torch.nn.functional.binary_cross_entropy_with_logits(logits / temperature, truths))
        for temperature in tried
    ]
    return tried[losses.index(min(losses))]
