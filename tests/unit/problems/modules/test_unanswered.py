"""Problems without a known kernel: right modules, apart from the pairs, in the share that is asked for."""

import re
from itertools import islice
from typing import Any

import torch

from kernels_eval.problem import check_problem_source
from tasks.problems.config import ProblemsConfig
from tasks.problems.modules.rows import draw_training_rows
from tasks.problems.modules.unanswered import FUNCTIONS, stream_unanswered

NAMED_SIZES = re.compile(
    r"(?m)^(batch_size|rows|cols|M|N|n|dim\w*|size|length|depth|height|width|features|seq_len) = \d\d+"
)

BATCHES = re.compile(r"(?m)^(batch_size) = \d\d+")


def drawn(count: int, seed: int = 0, unseen: frozenset[str] = frozenset()) -> list[Any]:
    return list(islice(stream_unanswered(seed, unseen), count))


def test_the_same_seed_gives_the_same_problems() -> None:
    problems = drawn(200)
    assert drawn(200) == problems
    assert len({problem.digest for problem in problems}) == 200
    assert drawn(20, seed=1) != problems[:20]
    assert {problem.level for problem in problems} == {1, 2}


def test_each_is_a_module_with_finite_results() -> None:
    computed = 0
    for problem in drawn(150, seed=2):
        check_problem_source(problem.source, problem.name)
        space: dict[str, Any] = {}
        # A second input has the sizes that a convolution leaves, written out.
        sizes = BATCHES if "torch.randn(batch_size, out_channels, " in problem.source else NAMED_SIZES
        exec(sizes.sub(r"\1 = 12", problem.source), space)
        torch.manual_seed(0)
        result = space["Model"](*space["get_init_inputs"]())(*space["get_inputs"]())
        assert torch.isfinite(result).all(), problem.source
        computed += 1
    assert computed == 150


def test_some_are_long_chains_with_a_function_among_their_steps() -> None:
    normalised = [problem for problem in drawn(200) if "Norm" in problem.source and "nn.Conv" in problem.source]
    assert len(normalised) > 10
    assert {problem.level for problem in normalised} == {2}
    forms = [form.split("(")[0] for form in FUNCTIONS.values() if form.startswith("torch.")]
    assert sum(any(form in problem.source for form in forms) for problem in normalised) > 5


def test_no_layer_is_unseen() -> None:
    layers = frozenset({"conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d"})
    sources = [problem.source for problem in drawn(150, unseen=layers)]
    assert not any("nn.Conv" in source for source in sources)
    assert any("nn.Linear" in source for source in sources)


def test_training_has_the_share_that_is_asked_for_and_no_kernel_for_it() -> None:
    config = ProblemsConfig(source="modules", train=200, heldout=1, levels=(1, 2), unanswered=0.5)
    rows = draw_training_rows(config)
    without = [row for row in rows if row.reference_kernel is None]
    assert 75 < len(without) < 125
    assert {row.problem.problem_id.split("-")[0] for row in without} == {"open"}
    answered = [row.problem.digest for row in rows if row.reference_kernel is not None]
    plain = draw_training_rows(config.model_copy(update={"unanswered": 0.0}))
    assert [row.problem.digest for row in plain][: len(answered)] == answered
