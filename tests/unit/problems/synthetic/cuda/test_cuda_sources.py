"""Generated CUDA C++: every kernel is run on the CPU, thread by thread, and compared with the problem in PyTorch."""

import ast
import random
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
from emulated_cuda import EmulatedExtension, build, loaded

from tasks.problems.synthetic.composition import Composition, draw_composition, parse_composition
from tasks.problems.synthetic.cuda import kernels
from tasks.problems.synthetic.cuda.operators import OPERATORS
from tasks.problems.synthetic.cuda.sources import CHOICES, cuda_source
from tasks.problems.synthetic.cuda.styles import CudaStyle, fastest_style, slow_styles, styles_of
from tasks.problems.synthetic.operators import ALL
from tasks.problems.synthetic.sizes import SIZES
from tasks.problems.synthetic.sources import Shape, problem_source
from tasks.problems.synthetic.well_posed import is_well_posed

SHAPES = (Shape(rows=5, columns=300, inner=36), Shape(rows=35, columns=40, inner=20))
"""Rows longer than a block, and rows and columns that fill no tile; more rows than a grid-stride kernel has blocks."""
FEW_BLOCKS = 3


@dataclass
class Case:
    """One generated module with the inputs that its problem has."""

    name: str
    shape: Shape
    module: dict[str, Any]
    extension: EmulatedExtension
    problem: dict[str, Any]

    def differs(self, backwards: bool = False) -> str | None:
        """Return how the module's output differs from PyTorch's; None if it does not."""
        self.extension.backwards = backwards
        torch.manual_seed(0)
        arguments, inputs = self.problem["get_init_inputs"](), self.problem["get_inputs"]()
        model, new = self.problem["Model"](*arguments), self.module["ModelNew"](*arguments)
        new.load_state_dict(model.state_dict())
        with torch.no_grad():
            expected = model(*inputs)
            try:
                torch.testing.assert_close(new(*inputs), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))
            except (AssertionError, RuntimeError) as error:
                return f"{self.name}: {error}"
        return None


def case(
    composition: Composition,
    style: CudaStyle,
    shape: Shape,
    wrong: Sequence[str] = (),
    threads: int = 64,
    changed: Callable[[str], str] = str,
) -> Case:
    source = changed(cuda_source(composition, style, wrong, threads))
    module, extension = loaded(source.replace(f"<<<{kernels.BLOCKS}, ", f"<<<{FEW_BLOCKS}, "))
    problem: dict[str, Any] = {}
    exec(problem_source(composition, shape), problem)
    return Case(f"{composition.key} {style} {shape} {wrong}", shape, module, extension, problem)


def compositions(count: int, seed: int) -> list[Composition]:
    generator = random.Random(seed)
    found: dict[str, Composition] = {}
    while len(found) < count:
        drawn = draw_composition(generator.choice((2, 3, 3)), generator)
        if is_well_posed(drawn.key):
            found[drawn.key] = drawn
    return list(found.values())


def built(cases: list[Case], folder: Path) -> list[Case]:
    build([each.extension for each in cases], folder)
    return cases


PARTS = [0, *(pytest.param(part, marks=pytest.mark.long) for part in (1, 2, 3))]
"""The first part is in every run; all of them are 780 kernels."""


@pytest.mark.parametrize("part", PARTS)
def test_every_operator_in_every_style_computes_what_pytorch_does(part: int, tmp_path: Path) -> None:
    singles = [parse_composition(operator.name) for operator in ALL[part::4]]
    cases = [case(one, style, shape) for one in singles for style in styles_of(one) for shape in SHAPES]
    assert len(cases) > 80
    assert [found for each in built(cases, tmp_path) if (found := each.differs(each.shape is SHAPES[1]))] == []


@pytest.mark.parametrize("part", PARTS)
def test_every_style_of_drawn_compositions_computes_what_pytorch_does(part: int, tmp_path: Path) -> None:
    generator = random.Random(part)
    cases = [
        case(one, style, generator.choice(SHAPES), threads=generator.choice(CHOICES[:3]))
        for one in compositions(18, seed=part)
        for style in styles_of(one)
    ]
    assert len(cases) > 90
    found = [each.differs(backwards) for each in built(cases, tmp_path) for backwards in (False, True)]
    assert [text for text in found if text] == []


def test_every_mistake_shows_in_the_output(tmp_path: Path) -> None:
    singles = [parse_composition(operator.name) for operator in ALL]
    drawn = random.Random(0)
    cases = [case(one, drawn.choice(styles_of(one)), SHAPES[1], one.names) for one in singles]
    assert [each.name for each in built(cases, tmp_path) if each.differs() is None] == []


def without_barrier(place: int) -> Callable[[str], str]:
    def changed(source: str) -> str:
        pieces = source.split("__syncthreads();")
        return "__syncthreads();".join(pieces[: place + 1]) + "__syncthreads();".join(pieces[place + 1 :])

    return changed


@pytest.mark.parametrize(("key", "barriers"), [("layer_norm", 3), ("transpose", 1), ("linear", 2)])
def test_the_emulation_finds_each_barrier_that_is_missing(key: str, barriers: int, tmp_path: Path) -> None:
    """A check of the check: in one of both orders of the threads at least."""
    one = parse_composition(key)
    assert cuda_source(one, CudaStyle.SHARED).count("__syncthreads();") == barriers
    cases = [case(one, CudaStyle.SHARED, SHAPES[1], changed=without_barrier(place)) for place in range(barriers)]
    found = [each.differs(False) or each.differs(True) for each in built(cases, tmp_path)]
    assert [place for place, text in enumerate(found) if text is None] == []


def test_the_emulation_finds_accesses_beside_a_tensor_and_barriers_that_some_threads_miss(tmp_path: Path) -> None:
    relu, softmax = parse_composition("relu"), parse_composition("softmax")
    cases = [
        case(relu, CudaStyle.COALESCED, SHAPES[1], changed=lambda s: s.replace("i >= M * N", "i > M * N")),
        case(relu, CudaStyle.FLOAT4, SHAPES[1], changed=lambda s: s.replace("i >= M * N / 4", "i >= M * N / 4 - 1")),
        case(softmax, CudaStyle.SHARED, SHAPES[1], changed=lambda s: s.replace(" row = blockIdx.x;", _LEAVES)),
        case(softmax, CudaStyle.WARP, SHAPES[1], changed=lambda s: s.replace("step = 16", "step = 8")),
    ]
    found = [each.differs() or "" for each in built(cases, tmp_path)]
    assert "a kernel wrote beside a tensor" in found[0]
    assert "not close" in found[1]
    assert "some threads wait at a barrier" in found[2]
    assert "not close" in found[3]


_LEAVES = " row = blockIdx.x; if (threadIdx.x == 3) return;"


def test_every_operator_of_the_suite_has_its_cuda() -> None:
    assert OPERATORS.keys() == {operator.name for operator in ALL}
    for operator in ALL:
        found = OPERATORS[operator.name]
        assert (found.steps, found.store, found.weight) != (found.wrong, found.wrong_store, found.wrong_weight)
        assert (found.weight is not None) == (operator.family == "matmul")
        assert (found.result is not None) == (operator.output_shape == "M")


def test_styles_are_distinct_programs_with_one_kernel_a_launch() -> None:
    for one in [*(parse_composition(operator.name) for operator in ALL), *compositions(40, seed=9)]:
        styles = styles_of(one)
        assert len(styles) >= 4
        assert fastest_style(one) in styles
        assert slow_styles(one)
        assert fastest_style(one) not in slow_styles(one)
        sources = [cuda_source(one, style) for style in styles]
        assert len(set(sources)) == len(sources), one.key
        for source in sources:
            assert "ModelNew" in {node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef)}
            defined = re.findall(r"__global__ void (\w+)\(", source)
            assert defined == re.findall(r"(\w+)<<<", source)
            assert "\\" not in source  # the source is no raw string


def test_sizes_of_the_suite_suit_kernels_of_four_elements_and_of_a_warp_a_row() -> None:
    for sizes in (part for range_ in SIZES.values() for part in (range_.known, range_.new)):
        columns = {*sizes.columns, *sizes.matmul_columns}
        assert all(size % 4 == 0 for size in columns | set(sizes.inner))
        assert max(columns) * kernels.WARPS * 4 <= 48 * 1024
        assert max(sizes.matmul_rows) * max(sizes.matmul_columns) < 2**31
        assert max(sizes.matmul_rows) * max(sizes.inner) < 2**31
