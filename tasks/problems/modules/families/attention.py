"""Attention of given queries, keys and values: with softmax, causal, of several heads, with ReLU instead of softmax.

plain: one kernel; a program has a block of queries, and goes over the keys with a running maximum and sum.
"""

from tasks.problems.modules.convolution_texts import block, enclosed
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.text import Argument, Input, Module, kernel_text, problem_text

_TITLES = {
    "attention": "a scaled dot-product attention",
    "causal_attention": "a causal scaled dot-product attention",
    "multi_head_attention": "an attention of several heads",
    "relu_attention": "an attention with ReLU in place of softmax",
}
_NAMES = (("q", "k", "v"), ("Q", "K", "V"), ("query", "key", "value"))


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of one attention."""
    operator = rng.choice(rng.unless(FAMILY.operators, unseen, str))
    names, rank = rng.choice(_NAMES), rng.pick(3, 4)
    heads, length, size = rng.pick(2, 4, 8), rng.pick(64, 128, 256, 200, 512), rng.pick(16, 32, 64)
    batch = rng.pick(1, 2, 4, 8)
    constants = [("batch_size", batch), ("num_heads", heads), ("seq_len", length), ("head_dim", size)]
    if operator == "multi_head_attention":
        dims = ("batch_size", "seq_len", "num_heads * head_dim")
    elif rank == 3:
        dims = ("batch_size", "seq_len", "head_dim")
        del constants[1]
    else:
        dims = ("batch_size", "num_heads", "seq_len", "head_dim")
    shape = ", ".join(dims)
    arguments, init, forward = _problem(rng, operator, names)
    module = Module(
        _TITLES[operator],
        tuple(Input(name, f"torch.randn({shape})", meaning=f"Tensor of shape ({shape}).") for name in names),
        forward,
        arguments,
        init,
        tuple((name, str(value)) for name, value in constants),
    )
    return ModulePair(
        family=FAMILY.name,
        operator=operator,
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=kernel_text([_kernel(operator)], module, _host(operator, names), init),
        style="plain",
    )


def _problem(
    rng: Draw, operator: str, names: tuple[str, str, str]
) -> tuple[tuple[Argument, ...], tuple[str, ...], tuple[str, ...]]:
    """Return the constructor's arguments, its statements and the statements of `forward`."""
    q, k, v = names
    if operator == "multi_head_attention":
        split = "shape[0], {0}.shape[1], self.num_heads, -1).transpose(1, 2)"
        lines = tuple(f"{name} = {name}.view({name}.{split.format(name)}" for name in names)
        core = _softmax(rng, names, causal=False)
        joined = "return out.transpose(1, 2).reshape(out.shape[0], out.shape[2], -1)"
        return (
            (Argument("num_heads", "num_heads", meaning="Number of heads."),),
            ("self.num_heads = num_heads",),
            (*lines, *core[:-1], core[-1].replace("return ", "out = "), joined),
        )
    if operator == "relu_attention":
        scores = f"scores = torch.matmul({q}, {k}.transpose(-2, -1)) * ({q}.shape[-1] ** -0.5)"
        return (
            (),
            (),
            (
                scores,
                rng.pick("scores = torch.relu(scores)", "scores = F.relu(scores)"),
                f"return torch.matmul(scores, {v})",
            ),
        )
    return (), (), _softmax(rng, names, causal=operator == "causal_attention")


def _softmax(rng: Draw, names: tuple[str, str, str], *, causal: bool) -> tuple[str, ...]:
    q, k, v = names
    if rng.chance(0.35):
        return (f"return F.scaled_dot_product_attention({q}, {k}, {v}{', is_causal=True' if causal else ''})",)
    scale = rng.pick(f"/ ({q}.shape[-1] ** 0.5)", f"* ({q}.shape[-1] ** -0.5)", f"/ math.sqrt({q}.shape[-1])")
    if "math" in scale:
        scale = scale.replace("math.sqrt(", "(").replace(".shape[-1])", ".shape[-1] ** 0.5)")
    product = rng.pick(f"torch.matmul({q}, {k}.transpose(-2, -1))", f"{q} @ {k}.transpose(-2, -1)")
    lines = [f"scores = {f'({product})' if '@' in product else product} {scale}"]
    if causal:
        lines.append(f"mask = torch.tril(torch.ones({q}.shape[-2], {q}.shape[-2], device={q}.device))")
        lines.append("scores = scores.masked_fill(mask == 0, float('-inf'))")
    lines.append(rng.pick("weights = torch.softmax(scores, dim=-1)", "weights = F.softmax(scores, dim=-1)"))
    return (*lines, rng.pick(f"return torch.matmul(weights, {v})", f"return weights @ {v}"))


def _kernel(operator: str) -> str:
    several = operator == "multi_head_attention"
    width = "H * D" if several else "D"
    mask = "cols[None, :] < L" if operator != "causal_attention" else "(cols[None, :] < L) & (cols[None, :] <= rows)"
    base = "n // H * L * H * D + n % H * D" if several else "n * L * D"
    online = (
        f'x = tl.where({mask}, x, -float("inf"))',
        "new = tl.maximum(m, tl.max(x, 1, keep_dims=True))",
        "x = tl.exp(x - new)",
        "old = tl.exp(m - new)",
        "total = total * old + tl.sum(x, 1, keep_dims=True)",
        'acc = tl.dot(x, v, acc * old, input_precision="tf32x3")',
        "m = new",
    )
    relu = ("x = tl.maximum(x, 0.0)", 'acc = tl.dot(x, v, acc, input_precision="tf32x3")')
    is_relu = operator == "relu_attention"
    start = (
        ()
        if is_relu
        else (
            'm = tl.full((ROWS, 1), -float("inf"), tl.float32)',
            "total = tl.zeros((ROWS, 1), dtype=tl.float32)",
        )
    )
    value = "acc" if is_relu else "acc / total"
    return f"""def attention_kernel(q_ptr, k_ptr, v_ptr, out_ptr, L, {"H, " if several else ""}scale, \
D: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    n = tl.program_id(1)
    base = {base}
    d = tl.arange(0, D)
    q = tl.load(q_ptr + base + rows * {enclosed(width)} + d[None, :], mask=rows < L, other=0.0)
    acc = tl.zeros((ROWS, D), dtype=tl.float32)
{block(start, 4)}    for first in range(0, L, COLS):
        cols = first + tl.arange(0, COLS)
        k = tl.load(k_ptr + base + cols[None, :] * {enclosed(width)} + d[:, None], mask=cols[None, :] < L, other=0.0)
        v = tl.load(v_ptr + base + cols[:, None] * {enclosed(width)} + d[None, :], mask=cols[:, None] < L, other=0.0)
        x = tl.dot(q, k, input_precision="tf32x3") * scale
{block(relu if is_relu else online, 8)}    tl.store(out_ptr + base + rows * {enclosed(width)} + d[None, :], \
{value}, mask=rows < L)"""


def _host(operator: str, names: tuple[str, str, str]) -> list[str]:
    q, k, v = names
    lines = [f"{q}, {k}, {v} = {q}.contiguous(), {k}.contiguous(), {v}.contiguous()"]
    if operator == "multi_head_attention":
        lines += [f"B, L, H = {q}.shape[0], {q}.shape[1], self.num_heads", f"D = {q}.shape[2] // H"]
        count, heads = "B * H", "H, "
    else:
        lines += [f"L, D = {q}.shape[-2:]"]
        count, heads = f"{q}.numel() // (L * D)", ""
    return [
        *lines,
        f"out = torch.empty_like({q})",
        f"grid = (triton.cdiv(L, 32), {count})",
        f"attention_kernel[grid]({q}, {k}, {v}, out, L, {heads}D ** -0.5, D, ROWS=32, COLS=32)",
        "return out",
    ]


FAMILY = Family("attention", tuple(_TITLES), draw)
