"""The two styles of a chain's kernel, and the texts that serve every layer."""

import re
from collections import defaultdict
from typing import Any

import pytest
import torch

from tasks.problems.modules import chain_tails
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families import chains, convolutions, long_chains, pooling, transposed_convolutions
from tasks.problems.modules.pair import Family, ModulePair

LAYERS = "conv|conv_transpose|depthwise|average_pool|max_pool"


def composed(count: int = 300) -> list[ModulePair]:
    rng = Draw("styles")
    pairs = [family.draw(rng, frozenset()) for family in (chains, long_chains) for _ in range(count)]
    return [pair for pair in pairs if pair.style == "composed"]


def functions(kernel: str, names: str) -> dict[str, str]:
    """Return the texts of the host functions of these names."""
    return {found[1]: found[0] for found in re.finditer(rf"def ({names})\(x, layer\):\n(?:    .*\n)+", kernel)}


def rank_of(pair: ModulePair) -> str:
    found = re.search(r"\dd", pair.operator)
    assert found
    return found[0]


@pytest.mark.parametrize("module", [convolutions, transposed_convolutions, pooling], ids=lambda module: module.__name__)
def test_one_text_serves_every_layer_of_a_kind_and_rank(module):
    family: Family = module.FAMILY
    rng, texts = Draw("texts"), defaultdict(set)
    for _ in range(150):
        pair = family.draw(rng, frozenset())
        for name, text in functions(pair.kernel_source, LAYERS).items():
            texts[name, rank_of(pair)].add(text)
    assert len(texts) >= 3
    assert all(len(found) == 1 for found in texts.values())


def test_a_composed_chain_has_the_texts_of_single_layers():
    single = {
        text
        for module in (convolutions, transposed_convolutions, pooling)
        for rng in [Draw("single")]
        for _ in range(150)
        for text in functions(module.FAMILY.draw(rng, frozenset()).kernel_source, LAYERS).values()
    }
    found = {text for pair in composed() for text in functions(pair.kernel_source, LAYERS).values()}
    assert found
    assert found <= single


def test_forward_of_a_composed_chain_is_a_list_of_calls():
    for pair in composed():
        forward = re.split(r"def forward\(self, x(?:, \w+)?\):\n", pair.kernel_source)[1].strip().splitlines()
        assert all(re.fullmatch(r" *x = \w+\((\w+, )?x(, [\w.]+)*\)", line) for line in forward[:-1]), forward
        assert forward[-1].strip() == "return x"


def test_both_styles_are_drawn_and_long_chains_are_mostly_composed():
    rng = Draw("both")
    shares = [
        sum(module.draw(rng, frozenset()).style == "composed" for _ in range(200)) / 200
        for module in (chains, long_chains)
    ]
    assert 0.3 < shares[0] < 0.75 < shares[1] < 0.95


def long_problems(count: int = 800) -> list[ModulePair]:
    rng = Draw("long")
    return [long_chains.draw(rng, frozenset()) for _ in range(count)]


def test_a_pooling_may_come_twice_by_one_layer_or_by_two():
    twice = [
        pair for pair in long_problems() if {pair.operators.count(f"{kind}_pool") for kind in ("max", "average")} & {2}
    ]
    layers = [len(re.findall(r"= nn\.(?:Max|Avg)Pool", pair.problem_source)) for pair in twice]
    assert set(layers) == {1, 2}
    for pair, count in zip(twice, layers, strict=True):
        assert len(re.findall(r"def \w*pool\w*\(x, layer\)", pair.kernel_source)) == 1
        assert len(re.findall(r"= nn\.(?:Max|Avg)Pool", pair.kernel_source)) == count


def test_the_last_reduction_may_leave_its_dimension_out_or_be_over_another_one():
    forms = [
        re.findall(r"torch\.(?:max|amax|min|amin|mean|logsumexp)\(x, dim=(\d)(, keepdim=True)?\)", pair.problem_source)
        for pair in long_problems()
    ]
    found = {form for each in forms for form in each}
    assert {("1", ""), ("1", ", keepdim=True"), ("2", ""), ("2", ", keepdim=True")} <= found
    assert all(kept for each in forms for _, kept in each[:-1])  # what follows needs the dimension


def test_steps_have_comments_numbers_come_twice_and_layers_have_their_defaults():
    sources = "".join(pair.problem_source for pair in long_problems())
    assert re.search(r"x = [^\n]+  # [A-Z]", sources)
    assert re.search(r"self\.(\w+)_1\b", sources)
    assert "nn.LeakyReLU()" in sources
    assert re.search(r"nn\.Hardtanh\(min_val=\w+, max_val=\w+\)", sources)


def test_a_second_input_is_read_by_a_kernel_of_the_steps():
    pairs = [pair for pair in long_problems() if any(name.startswith("input_") for name in pair.operators)]
    assert len(pairs) > 20
    for pair in pairs:
        name = re.search(r"def forward\(self, x(?:: torch\.Tensor)?, (\w+)", pair.problem_source)
        assert name
        assert f"tl.load({name[1]} + i, mask=mask" in pair.kernel_source
        assert re.search(rf"apply\(\w+, x, .*\b{name[1]}\b", pair.kernel_source)


def test_some_have_three_tails_and_values_with_names_of_their_own():
    tails = {*chain_tails.MAP_TAILS, *chain_tails.ROW_TAILS}
    pairs = long_problems()
    counts = [sum(name in tails for name in pair.operators) for pair in pairs]
    assert set(counts) == {1, 2, 3}
    assert counts.count(3) > 20
    named = [pair for pair in pairs if re.search(r"return (x|h|out|y)\d+_?\n", pair.problem_source)]
    assert len(named) > 40
    for pair in [*named, *pairs[:300]]:
        space: dict[str, Any] = {}
        with torch.device("meta"):
            exec(pair.problem_source, space)
            space["Model"](*space["get_init_inputs"]())(*space["get_inputs"]())
