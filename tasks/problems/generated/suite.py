"""The bundled suite: hundreds of well-posed problems from a seed, split by composition.

No composition of a held-out problem occurs in a training problem, nor in the generated SFT corpus: the policy has seen
its operators, never their sequence. Held-out problems depend on `seed` and `heldout` alone. A composition is well-posed
if its output can be checked in fp32, is not constant, and depends on every operator.
"""

import random
from collections.abc import Iterator
from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import torch

from kernels_eval.errors import InputError
from kernels_eval.problem import Problem
from tasks.problems.config import ProblemsConfig
from tasks.problems.generated.composition import Composition, draw_composition, parse_composition
from tasks.problems.generated.sources import Shape, Style, kernel_source, problem_source
from tasks.problems.row import ProblemRow, Split

ROWS = (4096, 8192, 16384)
COLUMNS = (64, 96, 128, 160, 200, 256)
MATMUL_COLUMNS = (32, 48, 64)
INNER = (32, 64, 96)
LEVEL_SHARES = {1: 0.15, 2: 0.5, 3: 0.35}
_DRAWS_PER_PROBLEM = 200


def generate_problems(config: ProblemsConfig) -> list[ProblemRow]:
    """Return the held-out problems and then the training problems; InputError where the suite holds too few."""
    train = draw_training_compositions(config, config.train, seed=config.seed)
    rows: list[ProblemRow] = []
    for split, compositions in ((Split.HELDOUT, heldout_compositions(config)), (Split.TRAIN, train)):
        generator = random.Random(f"shapes-{split}-{config.seed}")
        rows += [_row(composition, draw_shape(composition, generator), split) for composition in compositions]
    return rows


def heldout_compositions(config: ProblemsConfig) -> list[Composition]:
    """Return the compositions that nothing may be trained on, in a fixed order."""
    generator = random.Random(f"heldout-{config.seed}")
    return list(_distinct(config, config.heldout, generator, excluded=set()))


def draw_training_compositions(config: ProblemsConfig, count: int, seed: int) -> list[Composition]:
    """Return `count` distinct compositions, none of them held out.

    Single operators are few: where a level has no more of them, the other levels fill up.
    """
    excluded = {composition.key for composition in heldout_compositions(config)}
    return list(_distinct(config, count, random.Random(f"train-{seed}"), excluded))


def draw_shape(composition: Composition, generator: random.Random) -> Shape:
    """Draw sizes that suit the composition."""
    rows = generator.choice(ROWS)
    if composition.head is not None:
        return Shape(rows=rows, columns=generator.choice(MATMUL_COLUMNS), inner=generator.choice(INNER))
    return Shape(rows=rows, columns=generator.choice(COLUMNS))


def problem_of(composition: Composition, shape: Shape) -> Problem:
    """Return the problem; its id tells composition and sizes."""
    sizes = "x".join(str(size) for size in (shape.rows, shape.inner, shape.columns) if size)
    return Problem(
        problem_id=f"generated/{composition.key}/{sizes}",
        source=problem_source(composition, shape),
        level=composition.level,
        family=composition.family,
        name=composition.key,
    )


def _row(composition: Composition, shape: Shape, split: Split) -> ProblemRow:
    return ProblemRow(
        problem=problem_of(composition, shape),
        split=split,
        composition=composition.key,
        reference_kernel=kernel_source(composition, Style.FUSED),
    )


def _distinct(
    config: ProblemsConfig, count: int, generator: random.Random, excluded: set[str]
) -> Iterator[Composition]:
    """Yield `count` distinct well-posed compositions, levels in their shares."""
    unknown = set(config.levels) - LEVEL_SHARES.keys()
    if unknown:
        raise InputError(f"problems.levels: the generated suite has levels 1, 2 and 3, found {min(unknown)}")
    weights = [LEVEL_SHARES[level] for level in config.levels]
    seen = set(excluded)
    found = 0
    for _ in range(count * _DRAWS_PER_PROBLEM):
        if found == count:
            return
        level = generator.choices(config.levels, weights)[0]
        composition = draw_composition(level, generator)
        if composition.key in seen or not is_well_posed(composition.key):
            continue
        seen.add(composition.key)
        found += 1
        yield composition
    if found < count:
        raise InputError(
            f"problems: the generated suite has fewer than {count} distinct compositions "
            f"at levels {list(config.levels)}; ask for fewer"
        )


MAX_ROUNDING = 2e-5
"""Largest error of fp32 against fp64 relative to the output's size: a fifth of the judge's tolerance."""
MIN_EFFECT = 1e-2
"""Smallest change, relative to the output's size, that leaving out any one operator must make."""
MIN_SPREAD = 1e-2
"""Smallest standard deviation relative to the output's root mean square: a constant is no problem."""


@cache
def is_well_posed(key: str) -> bool:
    """True where the output is finite, well-conditioned, not constant, and no operator can be left out."""
    # On tensors this small several threads only wait for each other: on a busy machine a hundred times longer.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _is_well_posed(parse_composition(key))
    finally:
        torch.set_num_threads(threads)


def _is_well_posed(composition: Composition) -> bool:
    exact = _output(composition, torch.float64)
    size = exact.square().mean().sqrt()
    if not torch.isfinite(exact).all() or size < 1e-6 or exact.std() < MIN_SPREAD * size:
        return False
    rounded = _output(composition, torch.float32).double()
    if (exact - rounded).abs().max() > MAX_ROUNDING * size:
        return False
    return all(_matters(composition, position, exact, float(size)) for position in range(len(composition.names)))


def _matters(composition: Composition, position: int, exact: torch.Tensor, size: float) -> bool:
    names = (*composition.names[:position], *composition.names[position + 1 :])
    operator = composition.operators[position]
    if not names or operator == composition.head or operator.output_shape != "M, N":
        return True
    without = _output(Composition(names=names), torch.float64)
    return bool((without - exact).abs().max() > MIN_EFFECT * size) if without.shape == exact.shape else True


def _output(composition: Composition, dtype: torch.dtype) -> torch.Tensor:
    """Run the operators' lines on the same small random tensors whatever the composition and dtype."""
    tensors = {name: value.to(dtype) for name, value in _tensors().items()}
    x = tensors["inputs"] if composition.head is not None else tensors["x"]
    weight = tensors["weight"] if composition.names[0] == "linear" else tensors["weight"].t()
    parameters = SimpleNamespace(weight=weight, scale=tensors["scale"], bias=tensors["bias"])
    scope: dict[str, Any] = {
        "torch": torch,
        "F": torch.nn.functional,
        "self": parameters,
        "x": x,
        "y": tensors["y"],
        "c": tensors["c"],
    }
    exec("\n".join(operator.torch_line for operator in composition.operators), scope)
    return scope["x"].double()


@lru_cache(maxsize=1)
def _tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = {
        "x": (8, 40),
        "inputs": (8, 32),
        "y": (8, 40),
        "c": (8, 1),
        "weight": (40, 32),
        "scale": (40,),
        "bias": (40,),
    }
    values = {name: torch.randn(shape, generator=generator).double() for name, shape in shapes.items()}
    values["weight"] /= 32**0.5
    values["scale"] = values["scale"].abs() + 0.5
    return values
