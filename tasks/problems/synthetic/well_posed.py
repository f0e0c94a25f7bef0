"""Check of compositions: the output can be verified in fp32, is not constant, and depends on every operator.

Computed once for each composition, on small random tensors.
"""

from functools import cache, lru_cache
from types import SimpleNamespace
from typing import Any

import torch

from tasks.problems.synthetic.composition import Composition, parse_composition

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
