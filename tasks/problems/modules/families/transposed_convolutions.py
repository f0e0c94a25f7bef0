"""Transposed convolutions of one to three dimensions, as one implicit matrix product.

plain: each output position gathers the input's elements that reach it; taps that fall between them count as 0.
"""

from tasks.problems.modules.convolution_problems import draw_layer, layer_module, layer_texts
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.text import kernel_text

_WEIGHTS = {"conv_transpose1d": 3, "conv_transpose2d": 5, "conv_transpose3d": 5}


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of one transposed convolution layer."""
    names = rng.unless(FAMILY.operators, unseen, str)
    operator = rng.choices(names, [_WEIGHTS[name] for name in names])[0]
    rank = int(operator[-2])
    layer = draw_layer(rng, rank, transposed=True)
    attribute = rng.pick(operator, f"conv{rank}d_transpose", "conv_transpose", "deconv")
    kind = "an asymmetric" if len(set(layer.kernel)) > 1 else "a square"
    title = f"a transposed {rank}D convolution" + (f" with {kind} kernel" if rank > 1 else "")
    module, defaults = layer_module(rng, layer, title, attribute)
    kernel = kernel_text([layer.text.text], module, [f"return conv_transpose(x, self.{attribute})"])
    problem, kernel = layer_texts(rng, module, defaults, kernel)
    return ModulePair(
        family=FAMILY.name,
        operator=operator,
        title=title,
        problem_source=problem,
        kernel_source=kernel,
        style="plain",
    )


FAMILY = Family("transposed_convolutions", tuple(_WEIGHTS), draw)
