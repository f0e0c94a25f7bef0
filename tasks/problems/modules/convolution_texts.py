"""Texts of convolution kernels: one implicit matrix product for each rank, with its host function.

The kernel takes stride, padding, dilation, groups and sizes from the layer: its text does not depend on their values.
"""

from collections.abc import Sequence
from dataclasses import dataclass

DIMENSIONS = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}
"""Names of an input's spatial sizes in the kernels, by rank."""
_SETTINGS = {"s": "stride", "p": "padding", "d": "dilation", "k": "kernel_size", "q": "output_padding"}


@dataclass(frozen=True)
class Convolution:
    """A convolution kernel and its host function, `conv(x, layer)` or `conv_transpose(x, layer)`.

    The text has what the layer needs: a bias, groups, dilation, stride and padding, an output's padding.
    """

    rank: int
    transposed: bool = False
    rows: int = 64
    """Output channels of a tile."""
    bias: bool = False
    grouped: bool = False
    dilated: bool = False
    strided: bool = True
    """Stride or padding are not the standard ones."""
    extended: bool = False
    """A transposed convolution has padding of its output."""
    uniform: bool = False
    """Settings are one number for all dimensions; `strided` is then about the whole."""
    extra: tuple[str, ...] = ()
    """Further arguments of kernel and host function, before the sizes."""
    steps: tuple[str, ...] = ()
    """Statements on `x`, the tile of the output; `o` is its channels, a column, and `p` its positions, a row."""
    reduces: bool = False
    """The steps leave one channel; the tile then has all of them."""

    @property
    def host(self) -> str:
        """Name of the host function."""
        return "conv_transpose" if self.transposed else "conv"

    @property
    def text(self) -> str:
        """The kernel, without its decorator, and the host function."""
        return self._kernel() + self._host()

    @property
    def _letters(self) -> str:
        return ("SP" if self.strided else "") + ("D" if self.dilated else "")

    @property
    def _sizes(self) -> list[str]:
        return [*(["G"] if self.grouped else []), "C", "OC"]

    def _named(self, letter: str) -> list[str]:
        return [letter] if self.uniform else [letter + dim for dim in DIMENSIONS[self.rank]]

    def _kernel(self) -> str:
        dims = DIMENSIONS[self.rank]
        lines, inside, offset = coordinates(self, "k", "(n * C + k // T)")
        bias = ["b_ptr"] if self.bias else []
        arguments = ["x_ptr", "w_ptr", *bias, "out_ptr", *self.extra, *self._sizes, *dims, *("O" + dim for dim in dims)]
        for letter in self._letters:  # the loop of a transposed convolution divides by the stride
            fixed = ": tl.constexpr" if self.transposed and letter == "S" else ""
            arguments += [name + fixed for name in self._named(letter)]
        arguments += [f"{name}: tl.constexpr" for name in self._named("K")]
        taps = " * ".join(["K"] * self.rank) if self.uniform else product("K", dims)
        channel = "g * OC + o" if self.grouped else "o"
        weight = f"{enclosed(channel)} * R + j"
        if self.transposed:
            weight = f"({'(g * C + j // T)' if self.grouped else 'j // T'} * OC + o) * T + j % T"
        flat = product("O", dims)
        after = [f"acc += tl.load(b_ptr + {channel}, mask=o < OC)"] if self.bias else []
        after += ["x = acc", *self.steps] if self.steps else []
        place = f"n * {enclosed(flat)}" if self.reduces else f"(n * OC + o) * {enclosed(flat)}"
        mask = f"p < {flat}" if self.reduces else f"(o < OC) & (p < {flat})"
        after.append(f"tl.store(out_ptr + {place} + p, {'x' if self.steps else 'acc'}, mask={mask})")
        before = [*(["g = n % G"] if self.grouped else []), f"T = {taps}", "R = C * T"]
        return f"""def {self.host}_kernel({", ".join(arguments)}):
    p = tl.program_id(0) * 64 + tl.arange(0, 64)[None, :]
    o = tl.program_id(1) * {self.rows} + tl.arange(0, {self.rows})[:, None]
    n = tl.program_id(2)
{block(before, 4)}    acc = tl.zeros(({self.rows}, 64), tl.float32)
    for start in range(0, R, 32):
        k = start + tl.arange(0, 32)[:, None]
        j = tl.trans(k)
{block(lines, 8)}        inside = {" & ".join(["(k < R)", *(inside or [f"(p < {flat})"])])}
        v = tl.load(x_ptr + {offset}, mask=inside, other=0.0)
        f = tl.load(w_ptr + {weight}, mask=(o < OC) & (j < R), other=0.0)
        acc = tl.dot(f, v, acc, input_precision="tf32x3")
{block(after, 4)}"""

    def _host(self) -> str:
        passed = [name.removesuffix("_ptr") for name in self.extra]
        lines = ["x = x.contiguous()", f"{'C, OC' if self.transposed else 'OC, C'} = layer.weight.shape[:2]"]
        if self.grouped:
            lines += ["G = layer.groups", f"{'C' if self.transposed else 'OC'} //= G"]
        names = [letter.lower() for letter in self._letters] + ["k"] + (["q"] if self.extended else [])
        settings = [f"layer.{_SETTINGS[name]}" for name in names]
        if self.uniform:
            kept = [name for name in names if name != "q"]
            values = ", ".join(f"layer.{_SETTINGS[name]}[0]" for name in kept)
            lines.append(f"{', '.join(name.upper() for name in kept)} = {values}")
            own = [("q", "layer.output_padding")] if self.extended else []
        else:
            own = list(zip(names, settings, strict=True))
        size, spatial = self._size(), "x.shape[2:]"
        if own:
            spatial = f"zip(x.shape[2:], {', '.join(setting for _, setting in own)})"
        lines.append(f"size = [{size} for {', '.join(['n', *(name for name, _ in own)])} in {spatial}]")
        groups = " * G" if self.grouped else ""
        lines.append(
            f"out = torch.empty((x.shape[0], {'1' if self.reduces else 'OC' + groups}, *size), device=x.device)"
        )
        lines.append(f"grid = (triton.cdiv(out[0, 0].numel(), 64), triton.cdiv(OC, {self.rows}), x.shape[0]{groups})")
        call = ["x", "layer.weight", *(["layer.bias"] if self.bias else []), "out", *passed, *self._sizes]
        call += ["*x.shape[2:]", "*size"]
        call += [name.upper() if self.uniform else f"*layer.{_SETTINGS[name]}" for name in names if name != "q"]
        lines += [f"{self.host}_kernel[grid]({', '.join(call)})", "return out"]
        return f"\n\ndef {self.host}({', '.join(['x', 'layer', *passed])}):\n" + block(lines, 4)

    def _size(self) -> str:
        """Return the expression of an output's size `n`."""
        stride, pad, dilation, kernel = "SPDK" if self.uniform else "spdk"
        reach = f"{dilation} * ({kernel} - 1) + 1" if self.dilated else kernel
        if self.transposed:
            return f"(n - 1) * {stride} - 2 * {pad} + {reach}{' + q' if self.extended else ''}"
        reach = f"{dilation} * ({kernel} - 1) - 1" if self.dilated else kernel
        return f"(n + 2 * {pad} - {reach}) // {stride} + 1" if self.strided else f"n - {kernel} + 1"


def depthwise(rank: int, *, bias: bool, dilated: bool) -> str:
    """Return the kernel of a convolution with one group for each channel, and `depthwise(x, layer)`."""
    conv = Convolution(rank, bias=bias, dilated=dilated)
    dims, letters = DIMENSIONS[rank], "SPD" if dilated else "SP"
    lines, inside, offset = coordinates(conv, "k", "n")
    arguments = ["x_ptr", "w_ptr", *(["b_ptr"] if bias else []), "out_ptr", "C", *dims]
    arguments += [letter + dim for letter in "O" + letters for dim in dims] + [f"K{dim}: tl.constexpr" for dim in dims]
    settings = [f"layer.{_SETTINGS[letter.lower()]}" for letter in letters + "K"]
    flat, reach = product("O", dims), "d * (k - 1) - 1" if dilated else "k"
    size = f"(n + 2 * p - {reach}) // s + 1 for n, {', '.join(letters.lower() + 'k')}"
    call = ["x", "layer.weight", *(["layer.bias"] if bias else []), "out", "x.shape[1]", "*x.shape[2:]", "*size"]
    return f"""def depthwise_kernel({", ".join(arguments)}):
    n = tl.program_id(0)
    p = tl.program_id(1) * 512 + tl.arange(0, 512)
    T = {product("K", dims)}
    acc = tl.zeros((512,), tl.float32)
    for k in range(0, T):
{block(lines, 8)}        v = tl.load(x_ptr + {offset}, mask={" & ".join(inside)}, other=0.0)
        acc += v * tl.load(w_ptr + n % C * T + k)
{block(["acc += tl.load(b_ptr + n % C)"] if bias else [], 4)}\
    tl.store(out_ptr + n * {enclosed(flat)} + p, acc, mask=p < {flat})


def depthwise(x, layer):
    x = x.contiguous()
    size = [{size} in zip(x.shape[2:], {", ".join(settings)})]
    out = torch.empty((*x.shape[:2], *size), device=x.device)
    grid = (x.shape[0] * x.shape[1], triton.cdiv(out[0, 0].numel(), 512))
    depthwise_kernel[grid]({", ".join(call + ["*" + setting for setting in settings])})
    return out
"""


def coordinates(conv: Convolution, tap: str, base: str) -> tuple[list[str], list[str], str]:
    """Return statements, conditions and flat offset of the input's element at position `p` and kernel element `tap`.

    `base`: expression of the plane that the element is in.
    """
    dims = DIMENSIONS[conv.rank]
    lines, inside, offset = list[str](), list[str](), base
    for index, dim in enumerate(dims):
        name, value, end = dim.lower(), dim.lower(), "" if conv.uniform else dim
        at, of = _digit("p", "O", dims, index), _digit(tap, "K", dims, index, uniform=conv.uniform)
        if index == 0:  # the outermost position is not bounded: what lies behind the last is not stored
            at = at.rsplit(" %", 1)[0]
        of += f" * D{end}" if conv.dilated else ""
        if conv.transposed:
            lines.append(f"{name} = {at} + P{end} - {of}")
            inside.append(f"({name} >= 0) & ({name} % S{end} == 0) & ({name} // S{end} < {dim})")
            value = f"{name} // S{end}"
        elif conv.strided:
            lines.append(f"{name} = {at} * S{end} - P{end} + {of}")
            inside.append(f"({name} >= 0) & ({name} < {dim})")
        else:
            lines.append(f"{name} = {at} + {of}")
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


def _digit(flat: str, letter: str, dims: Sequence[str], index: int, *, uniform: bool = False) -> str:
    """Return one coordinate of the flat index `flat` in the sizes `letter` + dimension, or all `letter`."""
    later = " * ".join([letter] * (len(dims) - 1 - index)) if uniform else product(letter, dims[index + 1 :])
    return f"{flat}{f' // {enclosed(later)}' if later else ''} % {letter}{'' if uniform else dims[index]}"
