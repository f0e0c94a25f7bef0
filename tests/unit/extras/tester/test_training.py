"""A tester on kernels whose verdicts follow a rule that it can find."""

import random
from pathlib import Path

import pytest

from extras.tester.examples import LABELS, Example
from extras.tester.training import TrainedTester, load_tester, save_tester, train_tester
from kernels_eval.errors import InputError

OPERATORS = ("relu", "tanh", "sigmoid", "exp", "abs", "silu")


def examples(problems: range, seed: int) -> list[Example]:
    """Kernels that are correct if they compute the problem's operator, and compile unless they miss a bracket."""
    drawn = random.Random(seed)
    found: list[Example] = []
    for problem in problems:
        operator = OPERATORS[problem % len(OPERATORS)]
        for _ in range(8):
            used, compiled = drawn.choice([operator, drawn.choice(OPERATORS)]), drawn.random() < 0.8
            kernel = f"y = tl.{used}(x{problem})" + ("" if compiled else " (")
            correct = compiled and used == operator
            issues = frozenset({"tiny_blocks"} if correct and drawn.random() < 0.5 else ())
            kernel += " BLOCK=16" if issues else " BLOCK=1024"
            source = f"return torch.{operator}(x)  # {problem}"
            found.append(Example(f"p{problem}", source, kernel, compiled, correct, issues))
    return found


@pytest.fixture(scope="module")
def tester() -> TrainedTester:
    return train_tester(examples(range(180), 1), examples(range(150, 240), 2), seed=3)


@pytest.mark.long
def test_it_finds_the_rule_and_says_how_well(tester: TrainedTester) -> None:
    figures = tester.facts.figures["labels"]
    assert list(figures) == ["compiled", "correct", "tiny_blocks"], "other issues never occur"
    assert figures["compiled"]["kernels"] == 60 * 8, "problems that it was trained on do not count"
    assert figures["compiled"]["accuracy"] > 0.97
    assert figures["tiny_blocks"]["auroc"] > 0.97
    assert figures["correct"]["auroc"] > 0.9
    assert figures["correct"]["calibration_error"] < 0.1
    choice = tester.facts.figures["choice"]["4"]
    assert choice["random"] + 0.15 < choice["tester"] <= choice["best"]


def test_it_ranks_kernels(tester: TrainedTester) -> None:
    right, wrong, broken = tester.correct(
        "return torch.relu(x)", ["y = tl.relu(x) BLOCK=1024", "y = tl.exp(x) BLOCK=1024", "y = tl.relu(x) ( BLOCK=1024"]
    )
    assert right > 0.5 > max(wrong, broken)
    assert tester.correct("return torch.relu(x)", []) == []


def test_a_saved_one_is_the_same(tester: TrainedTester, tmp_path: Path) -> None:
    save_tester(tester, tmp_path / "tester")
    again = load_tester(tmp_path / "tester")
    assert again.facts == tester.facts
    pairs = [("return torch.abs(x)", "y = tl.abs(x)")]
    assert again.probabilities(pairs).equal(tester.probabilities(pairs))
    assert again.probabilities(pairs).shape == (1, len(LABELS))


@pytest.mark.long
def test_the_same_seed_gives_the_same_tester() -> None:
    few = examples(range(40), 1)
    first, second = (train_tester(few, [], seed=5) for _ in range(2))
    assert first.facts == second.facts
    assert first.facts.figures == {}
    pairs = [("return torch.abs(x)", "y = tl.abs(x)")]
    assert first.probabilities(pairs).equal(second.probabilities(pairs))


def test_too_few_kernels_are_said_in_one_sentence() -> None:
    with pytest.raises(
        InputError, match=r"found 13\d judged kernels to train on, 0 of them correct; expected ten of each"
    ):
        train_tester([Example(f"p{n % 20}", "", str(n), True, False, frozenset()) for n in range(160)], [])


def test_a_folder_that_is_no_tester(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"expected a tester of `kernelmill tester`"):
        load_tester(tmp_path)
