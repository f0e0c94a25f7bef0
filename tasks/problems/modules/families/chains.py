"""Chains of level 2: a linear layer or a convolution, element-wise steps, and a reduction, normalisation or pooling.

plain: the steps are in the kernel of the product; what needs whole rows or planes has a second kernel. Slower: the
steps have a kernel of their own.
"""

from collections.abc import Sequence

from tasks.problems.modules.chain_tails import MAP_TAILS, ROW_TAILS, Tail, map_tail, row_tail
from tasks.problems.modules.convolution_texts import block
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families.chain_bases import (
    WEIGHTS,
    Base,
    channel_after,
    draw_base,
    product_text,
    renamed,
)
from tasks.problems.modules.families.chain_steps import OPERATORS, Step, draw_steps, parts
from tasks.problems.modules.families.elementwise import UNARY
from tasks.problems.modules.pair import SEPARATOR, Family, ModulePair
from tasks.problems.modules.text import Module, kernel_text, problem_text

LONGEST = 2300
"""Characters of a kernel at most: about 950 tokens."""
LONGEST_SLOW = 2700
"""Characters of a slower kernel at most, which a model reads and does not write."""


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of a chain of two to five operators."""
    while True:
        pair = _draw(rng, unseen)
        if len(pair.kernel_source) <= LONGEST:
            return pair


def _draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    base = draw_base(rng, unseen)
    tails = rng.unless(ROW_TAILS if base.layer is None else MAP_TAILS, unseen, str)
    has_tail = bool(tails) and rng.chance(0.5)
    count = rng.pick(0, 1, 1, 2) if has_tail else rng.pick(1, 1, 2, 2, 3, 4)
    steps = draw_steps(rng, unseen, count, base.channel)
    last = rng.choice(tails) if has_tail else ""
    after = rng.pick(0, 0, 1, 1, 2) if last else 0
    later = [renamed(step) for step in draw_steps(rng, unseen, after, channel_after(base, last))]
    names = [argument.name for step in (*steps, *later) for argument in step.arguments]
    if len(set(names)) < len(names):
        return _draw(rng, unseen)
    tail = tail_of(rng, base, last, later) if last else None
    module = module_of(base, steps, [(tail, later)] if tail else [])
    fused = tail is not None and bool(tail.fused)
    extra, lines, values = parts([*steps, *(later if fused else [])])
    if tail and fused:
        lines = (*parts(steps)[1], *tail.fused, *parts(later)[1])
    host, text = product_text(base, extra, lines, last if fused else "")
    first = f"{host}(x, self.{base.attribute}{''.join(f', {value}' for value in values)})"
    own = [base.init, *(line for step in steps for line in step.own_init)]
    own += [*(tail.own_init if tail else ()), *(line for step in later for line in step.own_init)]
    separate = tail and not fused
    after_product = [tail.kernel] if tail and separate else []
    forward = [f"x = {first}", *tail.host] if tail and separate else [f"return {first}"]
    apart = ""
    if steps and not fused:
        apart = kernel_text(*_with_steps_apart(base, steps, module, tail), own)
    done = [
        base.operator,
        *(step.name for step in steps),
        *([tail.name] if tail else []),
        *(step.name for step in later),
    ]
    return ModulePair(
        family=FAMILY.name,
        operator=SEPARATOR.join(done),
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=kernel_text([text, *after_product], module, forward, own),
        style="plain",
        slower=(apart,) if 0 < len(apart) <= LONGEST_SLOW else (),
    )


def _with_steps_apart(
    base: Base, steps: list[Step], module: Module, tail: Tail | None
) -> tuple[list[str], Module, list[str]]:
    """Return kernels, module and host statements of the chain whose steps have a launch of their own."""
    host, product = product_text(base, (), (), "")
    kernels = [product, _steps_kernel(base, steps), *([tail.kernel] if tail else [])]
    forward = [f"x = {host}(x, self.{base.attribute})", *_steps_host(parts(steps)[2])]
    return kernels, module, [*forward, *(tail.host if tail else ["return x"])]


def _steps_kernel(base: Base, steps: list[Step]) -> str:
    """Return the kernel that applies the steps to the product's result in memory."""
    extra, lines, _ = parts(steps)
    index, bound, _ = base.channel
    passed = "".join(f", {name}" for name in extra)
    return f"""def steps_kernel(x_ptr, out_ptr{passed}, n, S, {bound}, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    {index} = offsets // S % {bound}
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
{block(lines, 4)}    tl.store(out_ptr + offsets, x, mask=offsets < n)"""


def _steps_host(values: list[str]) -> list[str]:
    """Return the statements of `forward` that launch it; `values`: of its further arguments."""
    passed = "".join(f", {value}" for value in values)
    return [
        "n, S, y = x.numel(), x[0, 0].numel(), torch.empty_like(x)",
        f"steps_kernel[(triton.cdiv(n, 1024),)](x, y{passed}, n, S, x.shape[1], BLOCK=1024)",
        "x = y",
    ]


def module_of(base: Base, steps: list[Step], stages: Sequence[tuple[Tail, list[Step]]]) -> Module:
    """Return the problem's module; each stage is a tail with the steps that follow it."""
    titles, lines = [base.title], [f"x = self.{base.attribute}(x)"]
    arguments, init = [*base.arguments], [base.init]

    def add(added: list[Step]) -> None:
        for step in added:
            titles.append(step.title)
            lines.extend(step.forward)
            arguments.extend(step.arguments)
            init.extend(step.init)

    add(steps)
    for tail, later in stages:
        titles.append(tail.title)
        lines.append(f"x = {tail.form}")
        arguments.extend(tail.arguments)
        init.extend(tail.init)
        add(later)
    title = f"{', '.join(titles[:-1])} and {titles[-1]}"
    return Module(title, (base.input,), (*lines, "return x"), tuple(arguments), tuple(init), base.constants)


def tail_of(rng: Draw, base: Base, name: str, later: list[Step]) -> Tail:
    """Return the tail of this name on the first operator's output, with the steps that follow it in its kernel."""
    names, lines, values = parts(later)
    extra = dict(zip(names, values, strict=True))
    if base.layer is None:
        return row_tail(rng, name, base.shape[2], base.arguments[1].name, lines, extra)
    return map_tail(rng, name, base.layer.rank, base.layer.out_channels, lines, extra)


FAMILY = Family(
    "chains",
    (*WEIGHTS, *OPERATORS, *(unary.name for unary in UNARY), *dict.fromkeys((*ROW_TAILS, *MAP_TAILS))),
    draw,
    needed=tuple(WEIGHTS),
)
