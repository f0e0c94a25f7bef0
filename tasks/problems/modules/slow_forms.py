"""Slower kernels for the same problem, written from a fast kernel's text.

A form changes how the work is shared out, never what is computed: each of its kernels is correct. What needs another
algorithm, as a launch for each step of a chain, is written by the families (`ModulePair.slower`).
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tasks.problems.modules.draw import Draw

_Change = str | Callable[[re.Match[str]], str]


@dataclass(frozen=True)
class SlowForm:
    """A way to be slow. All of its patterns have to occur, and every place is replaced."""

    name: str
    changes: tuple[tuple[str, _Change], ...]

    def of(self, kernel: str) -> str | None:
        """Return the kernel in this form; None if it has no place for it."""
        slow = kernel
        for pattern, change in self.changes:
            if not re.search(pattern, slow):
                return None
            slow = re.sub(pattern, change, slow)
        return None if slow == kernel else slow


_SHARE_OF_BLOCK = 16
_SMALLEST_BLOCK = 256
"""Literal sizes below this are tiles of products, which have forms of their own."""


def _smaller(match: re.Match[str]) -> str:
    size = int(match[2])
    return match[1] + str(size // _SHARE_OF_BLOCK if size >= _SMALLEST_BLOCK else size)


FORMS = (
    SlowForm("no_tensor_cores", ((r'input_precision="tf32x3"', 'input_precision="ieee"'),)),
    SlowForm(
        "small_tiles",
        (
            (r"cdiv\(M, \d+\), triton\.cdiv\(N, \d+\)", "cdiv(M, 16), triton.cdiv(N, 16)"),
            (r"ROWS=\d+, COLS=\d+, BLOCK_K=\d+", "ROWS=16, COLS=16, BLOCK_K=16"),
        ),
    ),
    SlowForm(
        "few_positions_of_a_channel",
        (
            (r"\* 512 \+ tl\.arange\(0, 512\)", "* 32 + tl.arange(0, 32)"),
            (r"zeros\(\(512,\)", "zeros((32,)"),
            (r"numel\(\), 512\)", "numel(), 32)"),
        ),
    ),
    SlowForm("one_warp", ((r"(\w+_kernel\[grid\]\([^\n]*)\)\n", r"\1, num_warps=1)\n"),)),
    SlowForm("small_blocks", ((r"(triton\.cdiv\(\w+, |BLOCK=)(\d+)\b", _smaller),)),
)
_OTHER_ALGORITHM = 0.75
"""Share of the slow kernels that begin with one of the family's, where there is one."""
_WHOLE_ROW = re.compile(r"(BLOCK=triton\.next_power_of_2\(\w+\))(, num_warps=\d+)?")


def slow_kernel(rng: Draw, kernel: str, slower: tuple[str, ...]) -> str | None:
    """Return one of the slower kernels or the fast one, in up to two of the forms; None if that changes nothing."""
    is_slow = bool(slower) and rng.chance(_OTHER_ALGORITHM)
    slow = rng.choice(slower) if is_slow else kernel
    wanted = rng.pick(0, 1, 2) if is_slow else rng.pick(1, 2)
    for form in rng.sample(FORMS, len(FORMS)):
        changed = form.of(slow) if wanted else None
        if changed is not None:
            slow, wanted = changed, wanted - 1
    return None if slow == kernel else slow


def with_warps(kernel: str, warps: int) -> str:
    """Return the kernel, a program a row, with so many warps in its first launch: too many or too few for the row."""
    return _WHOLE_ROW.sub(rf"\1, num_warps={warps}", kernel, count=1)


def with_step_apart(kernel: str, name: str, step: str) -> str:
    """Return a kernel of `n` elements with its last statement `x = step` in a launch of its own."""
    apart = f"""@triton.jit
def {name}_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    x = {step}
    tl.store(out_ptr + offsets, x, mask=mask)


class ModelNew"""
    launch = f"{name}_kernel[(triton.cdiv(n, 1024),)](out, out, n, BLOCK=1024)\n        return out"
    kernel = kernel.replace(f"    x = {step}\n    tl.store", "    tl.store", 1)
    return kernel.replace("class ModelNew", apart, 1).replace("return out", launch, 1)
