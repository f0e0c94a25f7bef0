"""Division of a tensor by its Frobenius norm.

Three launches: the sum of squares of each block, the norm of these, the division.
"""

from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.text import Input, Module, kernel_text, problem_text

_SQUARES = """def squares_kernel(x_ptr, part_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(part_ptr + pid, tl.sum(v * v, 0))"""
_TOTAL = """def total_kernel(part_ptr, norm_ptr, parts, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    v = tl.load(part_ptr + offsets, mask=offsets < parts, other=0.0)
    tl.store(norm_ptr, tl.sqrt(tl.sum(v, 0)))"""
_DIVIDE = """def divide_kernel(x_ptr, norm_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    v = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, v / tl.load(norm_ptr), mask=mask)"""


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of it, its only operator."""
    shape = rng.shape(rng.pick(2, 3, 4))
    forms = (
        ("return x / torch.norm(x)",),
        ("norm = torch.linalg.norm(x)" if shape.rank == 2 else "norm = x.norm()", "return x / norm"),
        ("norm = torch.sqrt(torch.sum(x * x))", "return x / norm"),
        ("norm = torch.norm(x, p=2)", "x = x / norm", "return x"),
    )
    module = Module(
        title="a division by the Frobenius norm",
        inputs=(Input("x", shape.made(rng.tensor())),),
        forward=rng.choice(forms),
        constants=shape.constants,
    )
    host = ["x = x.contiguous()", "n = x.numel()", "parts = triton.cdiv(n, 4096)"]
    host += [
        "part = torch.empty(parts, device=x.device)",
        "norm = torch.empty(1, device=x.device)",
        "out = torch.empty_like(x)",
    ]
    host += ["squares_kernel[(parts,)](x, part, n, BLOCK=4096)"]
    host += ["total_kernel[(1,)](part, norm, parts, BLOCK=triton.next_power_of_2(parts))"]
    host += ["divide_kernel[(triton.cdiv(n, 1024),)](x, norm, out, n, BLOCK=1024)", "return out"]
    return ModulePair(
        family=FAMILY.name,
        operator="frobenius_norm",
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=kernel_text([_SQUARES, _TOTAL, _DIVIDE], module, host),
        style="fast",
    )


FAMILY = Family("whole_norm", ("frobenius_norm",), draw)
