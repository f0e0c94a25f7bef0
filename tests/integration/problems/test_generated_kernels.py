"""Every operator's kernel does what its PyTorch line says, compiles to machine code, and its mistake is a mistake."""

import random
from collections.abc import Iterator

import pytest

from kernels_eval import Judge, JudgeConfig, Status
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.operators import ALL, Place
from tasks.problems.synthetic.sources import Shape, Style, kernel_source
from tasks.problems.synthetic.suite import problem_of
from tasks.problems.synthetic.tuning import tunings

pytestmark = pytest.mark.long

SHAPE = Shape(rows=4096, columns=48, inner=32)
CHAINS = ("linear>gelu>shift_columns>transpose", "layer_norm>add_tensor>softmax>sum", "scale_rows>silu>even_columns")


@pytest.fixture(scope="module")
def judge() -> Iterator[Judge]:
    with Judge(JudgeConfig(workers=2, compile="correct")) as judge:
        yield judge


def chain_around(name: str) -> str:
    """The operator, with another before or after it, so that a kernel an operator is a style of its own."""
    place = next(operator.place for operator in ALL if operator.name == name)
    return f"sine>{name}" if place is Place.TAIL else f"{name}>sigmoid" if name != "sigmoid" else "sigmoid>sine"


@pytest.mark.slow
def test_every_operator_is_correct_at_its_full_size_and_compiles_in_every_style(judge):
    keys = [chain_around(operator.name) for operator in ALL]
    cases = [(key, style) for key in [*keys, *CHAINS] for style in Style]
    parsed = [(parse_composition(key), style) for key, style in cases]
    futures = [
        judge.submit(problem_of(made, SHAPE), kernel_source(made, style), None, {"full_size_share": 1.0})
        for made, style in parsed
    ]
    verdicts = [future.result() for future in futures]
    failed = {
        case: verdict.error_message
        for case, verdict in zip(cases, verdicts, strict=True)
        if verdict.status is not Status.CORRECT
    }
    assert not failed
    assert all(verdict.resources for verdict in verdicts)
    assert {verdict.executed_size for verdict in verdicts} == {SHAPE.rows}


@pytest.mark.parametrize("key", [CHAINS[0], "relu>transpose"])
def test_tuned_kernels_are_correct_and_compile(judge, key):
    composition = parse_composition(key)
    shape = Shape(rows=4096, columns=64 if composition.head else 200, inner=32 if composition.head else 0)
    every = tunings(composition, shape.columns)
    chosen = random.Random(key).sample(every, 6)
    chosen += [tuning for tuning in every if tuning.columns][:1]
    verdicts = judge.evaluate_many(
        [(problem_of(composition, shape), kernel_source(composition, Style.FUSED, tuning=tuning)) for tuning in chosen]
    )
    for tuning, verdict in zip(chosen, verdicts, strict=True):
        assert verdict.status is Status.CORRECT, (tuning, verdict.error_message)


@pytest.mark.slow
def test_every_mistake_is_found(judge):
    items = []
    for operator in ALL:
        composition = parse_composition(operator.name)
        items.append((problem_of(composition, SHAPE), kernel_source(composition, Style.FUSED, {operator.name})))
    verdicts = judge.evaluate_many(items)
    passed = [operator.name for operator, verdict in zip(ALL, verdicts, strict=True) if verdict.correct]
    assert not passed


def test_the_fused_style_is_estimated_faster_than_the_others(judge):
    composition = parse_composition("gelu>layer_norm>scale_columns")
    problem = problem_of(composition, Shape(rows=8192, columns=200))
    speedups = {style: judge.evaluate(problem, kernel_source(composition, style)).speedup for style in Style}
    assert speedups[Style.FUSED] == max(speedups.values())
    assert speedups[Style.FUSED] > 1.5 * speedups[Style.STEPWISE]
