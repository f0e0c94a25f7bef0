"""Pairs of an operator along one dimension of a tensor.

fast: the dimension is read once, in one tile where it fits. slow (as an earlier kernel): a loop over small blocks.
"""

from dataclasses import dataclass, replace

from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pair import ModulePair
from tasks.problems.modules.text import Argument, Input, Module, kernel_text, problem_text
from tasks.problems.modules.tiles import Along, Tiles, draw_dimension, result_shape, written_dim

_SLOW = 0.12
"""Share of the pairs that answer a slow kernel."""


@dataclass(frozen=True)
class OverDimension:
    """An operator along a dimension. In a form `{d}` stands for the dimension and `{k}` for `, keepdim=True`; lines
    before its last one are statements."""

    name: str
    title: str
    forms: tuple[str, ...]
    along: Along
    made: str = ""
    """Expression of the input; `{}` stands for its sizes."""
    integer: bool = False
    """The result is an index."""
    largest: int | None = None
    """Largest size of the dimension."""
    layer: str = ""
    """The layer of torch.nn that computes it; `{d}` as in a form."""


def draw_over_dimension(rng: Draw, family: str, operator: OverDimension) -> ModulePair:
    """Return a pair of the operator along some dimension of a tensor, given to the constructor or written out."""
    dimension = draw_dimension(rng, operator.largest)
    keep, given = rng.chance(0.4), rng.chance(0.6)
    dim = written_dim(rng, dimension)
    value = "self.dim" if given else dim
    form = rng.choice(operator.forms).format(d=value, k=", keepdim=True" if keep else "")
    init, own = (("self.dim = dim",), ("self.dim = dim",)) if given else ((), ())
    if operator.layer and rng.chance(0.25):
        form, init = "self.op(x)", (f"self.op = {operator.layer.format(d='dim' if given else dim)}",)
    made = operator.made.format(", ".join(dimension.shape.names)) or dimension.shape.made(rng.tensor())
    place = rng.pick("over a given dimension", "over a dimension", "along a specified dimension")
    module = Module(
        title=f"{operator.title} {place if given else f'over dimension {dim}'}",
        inputs=(Input("x", made),),
        forward=(*form.splitlines()[:-1], f"return {form.splitlines()[-1]}"),
        arguments=(Argument("dim", dim, "int", "The dimension."),) if given else (),
        init=init,
        constants=dimension.shape.constants,
    )
    written = _Written(module, operator, value, keep, own)
    problem = problem_text(rng, module)
    return ModulePair(
        family=family,
        operator=operator.name,
        title=module.title,
        problem_source=problem,
        kernel_source=written.kernel(dimension.fast()),
        style="fast",
        earlier_source=written.kernel(dimension.slow(rng)) if rng.chance(_SLOW) else None,
        slower=(written.kernel(dimension.slow(Draw(problem))),),
    )


@dataclass(frozen=True)
class _Written:
    """A problem of an operator, and how its kernel is called."""

    module: Module
    operator: OverDimension
    dim: str
    keep: bool
    init: tuple[str, ...]

    def kernel(self, tiles: Tiles) -> str:
        """Return the kernel's module."""
        along, name = self.operator.along, f"{self.operator.name}_kernel"
        place = "cols" if tiles.last else "rows"
        along = replace(along, step=tuple(line.replace("{place}", place) for line in along.step))
        host = tiles.host(self.dim)
        if along.reduced:
            kind = ", dtype=torch.int64" if self.operator.integer else ""
            host += [*result_shape(self.dim, self.keep), f"out = torch.empty(shape, device=x.device{kind})"]
        else:
            host.append("out = torch.empty_like(x)")
        host += [tiles.launch(name, "x, out"), "return out"]
        kernels = [along.helper] * bool(along.helper) + [tiles.kernel(name, along)]
        return kernel_text(kernels, self.module, host, self.init)
