"""Texts of convolution kernels: one implicit matrix product for each rank and kind, with its host function.

The general texts take stride, padding, dilation and groups from the layer, so a kernel is the same whatever the
constructor's values are. The texts for chains do without what the layer of a chain does not have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Kind = Literal["general", "plain", "transposed", "upsampling"]
"""`plain`: stride 1, no padding, one group. `upsampling`: a transposed convolution without dilation and groups."""
DIMENSIONS = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}
"""Names of an input's spatial sizes in the kernels, by rank."""
_SIZE = {
    "general": ("(n + 2 * p - d * (k - 1) - 1) // s + 1", "n, s, p, d, k"),
    "plain": ("n - k + 1", "n, k"),
    "transposed": ("(n - 1) * s - 2 * p + d * (k - 1) + q + 1", "n, s, p, d, k, q"),
    "upsampling": ("(n - 1) * s - 2 * p + k + q", "n, s, p, k, q"),
}
"""Expression of an output's size, and its variables."""
_SETTINGS = {"s": "stride", "p": "padding", "d": "dilation", "k": "kernel_size", "q": "output_padding"}


@dataclass(frozen=True)
class Convolution:
    """A convolution kernel and its host function, `conv(x, layer)` or `conv_transpose(x, layer)`."""

    rank: int
    kind: Kind = "general"
    rows: int = 64
    """Output channels of a tile."""
    cols: int = 64
    """Output positions of a tile."""
    extra: tuple[str, ...] = ()
    """Further arguments of kernel and host function, before the sizes."""
    steps: tuple[str, ...] = ()
    """Statements on `x`, the tile of the output; `o` is its channels, a column."""

    @property
    def host(self) -> str:
        """Name of the host function."""
        return "conv_transpose" if self.is_transposed else "conv"

    @property
    def is_transposed(self) -> bool:
        """Whether the weight's first dimension is the input's channels."""
        return self.kind in ("transposed", "upsampling")

    @property
    def is_grouped(self) -> bool:
        """Whether groups and an absent bias are provided for."""
        return self.kind in ("general", "transposed")

    @property
    def text(self) -> str:
        """The kernel, without its decorator, and the host function."""
        return self._kernel() + self._host()

    def _kernel(self) -> str:
        dims, grouped = DIMENSIONS[self.rank], self.is_grouped
        lines, inside, offset = coordinates(self.rank, self.kind, "ks", "(n * C + ks // T)")
        letters = {"plain": "", "upsampling": "SP"}.get(self.kind, "SPD")
        arguments = ["x_ptr", "w_ptr", "b_ptr", "out_ptr", *self.extra, *(["G"] if grouped else []), "C", "OC", *dims]
        fixed = ": tl.constexpr" if self.is_transposed else ""  # the loop divides by the stride
        arguments += [letter + dim + (fixed if letter == "S" else "") for letter in "O" + letters for dim in dims]
        arguments += [f"K{dim}: tl.constexpr" for dim in dims]
        arguments += [f"{name}: tl.constexpr" for name in (["BIAS"] if grouped else []) + ["ROWS", "COLS"]]
        channel = "g * OC + o" if grouped else "o"
        kernel = "k[None, :]"
        weight = f"({channel}) * K + {kernel}" if grouped else f"o * K + {kernel}"
        if self.is_transposed:
            first = f"(g * C + {kernel} // T)" if grouped else f"{kernel} // T"
            weight = f"({first} * OC + o) * T + {kernel} % T"
        add_bias = f"acc += tl.load(b_ptr + {channel}, mask=o < OC, other=0.0)"
        flat = product("O", dims)
        steps = ("x = acc", *self.steps) if self.steps else ()
        mask = f"(o < OC) & (p < {flat})"
        store = f"tl.store(out_ptr + (n * OC + o) * {enclosed(flat)} + p, {'x' if steps else 'acc'}, mask={mask})"
        return f"""def {self.host}_kernel({", ".join(arguments)}):
    p = tl.program_id(0) * COLS + tl.arange(0, COLS)[None, :]
    o = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    n = tl.program_id(2)
{"    g = n % G" + chr(10) if grouped else ""}    T = {product("K", dims)}
    K = C * T
    acc = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, K, 32):
        k = start + tl.arange(0, 32)
        ks = k[:, None]
{block(lines, 8)}        inside = {" & ".join(["(ks < K)", *(inside or [f"(p < {flat})"])])}
        v = tl.load(x_ptr + {offset}, mask=inside, other=0.0)
        f = tl.load(w_ptr + {weight}, mask=(o < OC) & ({kernel} < K), other=0.0)
        acc = tl.dot(f, v, acc, input_precision="tf32x3")
{"    if BIAS:" + chr(10) + "    " if grouped else ""}    {add_bias}
{block([*steps, store], 4)}"""

    def _host(self) -> str:
        size, names = _SIZE[self.kind]
        settings = [_SETTINGS[name] for name in names.split(", ")[1:]]
        passed = [name.removesuffix("_ptr") for name in self.extra]
        groups = " // G" if self.is_grouped else ""
        channels = f"w.shape[0]{groups}, w.shape[1]" if self.is_transposed else f"w.shape[1], w.shape[0]{groups}"
        grouped = self.is_grouped
        call = ["x", "w", "bias" if grouped else "layer.bias", "out", *passed, *(["G"] if grouped else []), "C", "OC"]
        call += ["*x.shape[2:]", "*size", *(f"*layer.{name}" for name in settings if name != "output_padding")]
        call += ["layer.bias is not None"] if grouped else []
        general = ["G, bias = layer.groups, w if layer.bias is None else layer.bias"] if grouped else []
        grid = f"triton.cdiv(out[0, 0].numel(), {self.cols}), triton.cdiv(OC, {self.rows}), x.shape[0]"
        return f"""

def {self.host}({", ".join(["x", "layer", *passed])}):
    x, w = x.contiguous(), layer.weight
{block(general, 4)}    C, OC = {channels}
    size = [{size} for {names} in zip(x.shape[2:], {", ".join("layer." + name for name in settings)})]
    out = torch.empty((x.shape[0], OC{" * G" if grouped else ""}, *size), device=x.device)
    grid = ({grid}{" * G" if grouped else ""})
    {self.host}_kernel[grid]({", ".join(call)}, ROWS={self.rows}, COLS={self.cols})
    return out
"""


def depthwise(rank: int, cols: int = 512) -> str:
    """Return the kernel of a convolution with one group for each channel, and `depthwise(x, layer)`."""
    dims = DIMENSIONS[rank]
    lines, inside, offset = coordinates(rank, "general", "k", "n")
    arguments = ["x_ptr", "w_ptr", "b_ptr", "out_ptr", "C", *dims, *(letter + dim for letter in "OSPD" for dim in dims)]
    arguments += [f"K{dim}: tl.constexpr" for dim in dims] + ["BIAS: tl.constexpr", "BLOCK: tl.constexpr"]
    size, names = _SIZE["general"]
    settings = [_SETTINGS[name] for name in names.split(", ")[1:]]
    flat = product("O", dims)
    return f"""def depthwise_kernel({", ".join(arguments)}):
    n = tl.program_id(0)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    T = {product("K", dims)}
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(0, T):
{block(lines, 8)}        v = tl.load(x_ptr + {offset}, mask={" & ".join(inside)}, other=0.0)
        acc += v * tl.load(w_ptr + n % C * T + k)
    if BIAS:
        acc += tl.load(b_ptr + n % C)
    tl.store(out_ptr + n * {enclosed(flat)} + p, acc, mask=p < {flat})


def depthwise(x, layer):
    x, w = x.contiguous(), layer.weight
    bias = w if layer.bias is None else layer.bias
    size = [{size} for {names} in zip(x.shape[2:], {", ".join("layer." + name for name in settings)})]
    out = torch.empty((*x.shape[:2], *size), device=x.device)
    grid = (x.shape[0] * x.shape[1], triton.cdiv(out[0, 0].numel(), {cols}))
    depthwise_kernel[grid](x, w, bias, out, x.shape[1], *x.shape[2:], *size, \
{", ".join(f"*layer.{name}" for name in settings)}, layer.bias is not None, BLOCK={cols})
    return out
"""


def coordinates(rank: int, kind: Kind, tap: str, base: str) -> tuple[list[str], list[str], str]:
    """Return statements, conditions and flat offset of the input's element at position `p` and kernel element `tap`.

    `base`: expression of the plane that the element is in.
    """
    dims = DIMENSIONS[rank]
    lines, inside, offset = list[str](), list[str](), base
    for index, dim in enumerate(dims):
        name, value = dim.lower(), dim.lower()
        at, of = _digit("p", "O", dims, index), _digit(tap, "K", dims, index)
        if index == 0:  # the outermost position is not bounded: what lies behind the last is not stored
            at = at.rsplit(" %", 1)[0]
        if kind == "plain":
            lines.append(f"{name} = {at} + {of}")
        elif kind == "general":
            lines.append(f"{name} = {at} * S{dim} - P{dim} + {of} * D{dim}")
            inside.append(f"({name} >= 0) & ({name} < {dim})")
        else:
            lines.append(f"{name} = {at} + P{dim} - {of}" + (f" * D{dim}" if kind == "transposed" else ""))
            inside.append(f"({name} >= 0) & ({name} % S{dim} == 0) & ({name} // S{dim} < {dim})")
            value = f"{name} // S{dim}"
        offset = f"{f'({offset})' if index else offset} * {dim} + {value}"
    return lines, inside, offset


def product(letter: str, dims: Sequence[str]) -> str:
    """Return the product of the names `letter` + dimension."""
    return " * ".join(letter + dim for dim in dims)


def enclosed(text: str) -> str:
    """Return the expression, in parentheses unless it is one name."""
    return f"({text})" if " " in text else text


def block(lines: Sequence[str], indent: int) -> str:
    """Return the lines, indented by `indent` spaces."""
    return "".join(f"{' ' * indent}{line}\n" for line in lines)


def _digit(flat: str, letter: str, dims: Sequence[str], index: int) -> str:
    """Return one coordinate of the flat index `flat` in the sizes `letter` + dimension."""
    later = product(letter, dims[index + 1 :])
    return f"{flat}{f' // {enclosed(later)}' if later else ''} % {letter}{dims[index]}"
