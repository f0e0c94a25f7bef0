"""Writes the kernel of a chain in two styles, from the same drawn parts.

plain: element-wise steps are in the kernel of the operator before them. composed: each layer has the function that
serves every layer of its kind, each run of element-wise steps a launch of its own; `forward` reads like the problem's.
"""

import re
from collections.abc import Sequence

from tasks.problems.modules.chain_tails import Tail, map_tail, row_tail
from tasks.problems.modules.convolution_texts import block
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.families.chain_bases import Base, product_text
from tasks.problems.modules.families.chain_steps import Step, parts
from tasks.problems.modules.pair import SEPARATOR
from tasks.problems.modules.text import Module, kernel_text

Stage = tuple[Tail, list[Step]]
"""A tail, and the element-wise steps that follow it."""
_APPLY = """

def apply(kernel, x, *values):
    out = torch.empty_like(x)
    n, C, S = x.numel(), x.shape[1:2].numel(), x.shape[2:].numel()
    kernel[(triton.cdiv(n, 1024),)](x, out, *values, n, C, S, BLOCK=1024)
    return out
"""
"""The host function of all element-wise kernels."""
_OF_A_CHANNEL = re.compile(r"tl\.load\((\w+) \+ (?!i,)\w+, mask=[^\n]*?, other=0\.0\)")
_STEP_KERNELS = ("steps_kernel", "later_steps_kernel", "last_steps_kernel", "final_steps_kernel")
_BUILTINS = ("max", "sum")
"""Tails whose function would hide one of Python's."""


def tail_on(rng: Draw, base: Base, name: str, *, is_last: bool = False) -> Tail:
    """Return the tail of this name on the first operator's output."""
    if base.layer is None:
        return row_tail(rng, name, base.shape[2], base.arguments[1].name, is_last=is_last)
    return map_tail(rng, name, base.layer.rank, base.layer.out_channels, is_last=is_last)


def module_of(base: Base, steps: list[Step], stages: Sequence[Stage]) -> Module:
    """Return the problem's module."""
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
    inputs = (base.input, *(step.given for step in steps if step.given is not None))
    return Module(title, inputs, (*lines, "return x"), tuple(arguments), tuple(init), base.constants)


def plain_text(base: Base, steps: list[Step], stages: Sequence[Stage], module: Module) -> str:
    """Return the kernel whose steps are in the kernel of the operator before them.

    A convolution's own tile applies a reduction over channels that follows its steps.
    """
    own = stages[0] if stages and stages[0][0].fused and base.layer is not None else None
    inside = [*steps, *(own[1] if own else [])]
    lines = (*parts(steps)[1], *own[0].fused, *parts(own[1])[1]) if own else parts(steps)[1]
    host, text = product_text(base, parts(inside)[0], lines, own[0].name if own else "")
    kernels = [text]
    forward = [f"x = {host}(x, self.{base.attribute}{''.join(f', {value}' for value in parts(inside)[2])})"]
    for tail, later in stages[1:] if own else stages:
        extra, lines, values = parts(later)
        written = tail.with_steps(lines, list(zip(extra, values, strict=True)))
        kernels.append(written.kernel)
        forward += [*written.host[:-1], "x = out"]
    return kernel_text(kernels, module, [*forward, "return x"], _own_init(base, steps, stages))


def composed_text(base: Base, steps: list[Step], stages: Sequence[Stage], module: Module) -> str:
    """Return the kernel that has one function for each layer, and one kernel for each run of steps."""
    host, text = product_text(base)
    kernels, forward = [text], [f"x = {host}(x, self.{base.attribute})"]
    names = iter(_STEP_KERNELS)

    def add(run: list[Step]) -> None:
        if run:
            name = next(names)
            kernels.append(_steps_kernel(name, run) + (_APPLY if name == _STEP_KERNELS[0] else ""))
            forward.append(f"x = apply({', '.join([name, 'x', *parts(run)[2]])})")

    add(steps)
    for tail, later in stages:
        function, call = _as_function(tail.with_steps())
        kernels += [function] * (function not in kernels)
        forward.append(f"x = {call}")
        add(later)
    return kernel_text(kernels, module, [*forward, "return x"], _own_init(base, steps, stages))


def operator_of(base: Base, steps: list[Step], stages: Sequence[Stage]) -> str:
    """Return the names of a chain's operators in their order, joined."""
    names = [base.operator, *(step.name for step in steps)]
    for tail, later in stages:
        names += [tail.name, *(step.name for step in later)]
    return SEPARATOR.join(names)


def _own_init(base: Base, steps: list[Step], stages: Sequence[Stage]) -> list[str]:
    """Return the statements of ModelNew's constructor."""
    own = [base.init, *(line for step in steps for line in step.own_init)]
    for tail, later in stages:
        own += [*tail.own_init, *(line for step in later for line in step.own_init)]
    return own


def _steps_kernel(name: str, steps: list[Step]) -> str:
    """Return the kernel of element-wise steps; a parameter has its attribute's name, be it a number or a tensor."""
    extra, lines, _ = parts(steps)
    passed = "".join(f", {value.removesuffix('_ptr')}" for value in extra)
    lines = tuple(_OF_A_CHANNEL.sub(r"tl.load(\1 + c, mask=mask, other=0.0)", line) for line in lines)
    lines = tuple(re.sub(r"(\w+)_ptr\b", r"\1", line) for line in lines)
    return f"""def {name}(x_ptr, out_ptr{passed}, n, C, S, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    c = i // S % C
    x = tl.load(x_ptr + i, mask=mask, other=0.0)
{block(lines, 4)}    tl.store(out_ptr + i, x, mask=mask)
"""


def _as_function(tail: Tail) -> tuple[str, str]:
    """Return the kernel with a function of `x` and the layer around its launch, and the function's call."""
    body, name = block(tail.host, 4), tail.name + "_reduction" * (tail.name in _BUILTINS)
    layer = re.search(r"self\.\w+(?=\.)", body)
    if layer is None:
        return f"{tail.kernel}\n\n\ndef {name}(x):\n{body}", f"{name}(x)"
    body = body.replace(layer[0], "layer")
    return f"{tail.kernel}\n\n\ndef {name}(x, layer):\n{body}", f"{name}(x, {layer[0]})"
