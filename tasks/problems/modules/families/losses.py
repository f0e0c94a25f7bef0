"""Losses of predictions and targets, averaged to one number.

Two launches: the partial sum of each block, or each row's loss, then the mean of these. Slower: a row's warps are far
too many or too few; the losses of all elements are written to memory before they are summed.
"""

from dataclasses import dataclass

from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.slow_forms import with_warps
from tasks.problems.modules.text import Argument, Input, Module, kernel_text, problem_text

_NAMES = (("predictions", "targets"), ("x", "y"), ("input", "target"), ("a", "b"))
_SHORT_ROW = 1024
_SIGNS = "torch.randint(0, 2, ({0},)).float() * 2 - 1"


@dataclass(frozen=True)
class PointwiseLoss:
    """A mean over elements. In a form `{a}`, `{b}` stand for the inputs and `{p}` for a parameter."""

    name: str
    title: str
    forms: tuple[str, ...]
    kernel: str
    parameter: str = ""
    values: tuple[str, ...] = ()
    targets: str = "torch.randn({0})"
    predictions: str = "torch.randn({0})"
    divisor: str = "n"
    ranks: tuple[int, ...] = (1, 2, 2, 2, 3, 4)


POINTWISE = (
    PointwiseLoss(
        "mse_loss",
        "the mean squared error",
        ("torch.mean(({a} - {b}) ** 2)", "F.mse_loss({a}, {b})"),
        "(a - b) * (a - b)",
    ),
    PointwiseLoss(
        "mae_loss",
        "the mean absolute error",
        ("torch.mean(torch.abs({a} - {b}))", "F.l1_loss({a}, {b})"),
        "tl.abs(a - b)",
    ),
    PointwiseLoss(
        "smooth_l1_loss",
        "the smooth L1 (Huber) loss",
        ("F.smooth_l1_loss({a}, {b})", "torch.nn.functional.smooth_l1_loss({a}, {b})"),
        "tl.where(tl.abs(a - b) < 1.0, 0.5 * (a - b) * (a - b), tl.abs(a - b) - 0.5)",
    ),
    PointwiseLoss(
        "huber_loss",
        "the Huber loss",
        ("F.huber_loss({a}, {b}, delta={p})",),
        "tl.where(tl.abs(a - b) < {p}, 0.5 * (a - b) * (a - b), {p} * (tl.abs(a - b) - 0.5 * {p}))",
        "delta",
        ("0.5", "1.0", "1.5"),
    ),
    PointwiseLoss(
        "hinge_loss",
        "the hinge loss",
        ("torch.mean(torch.clamp(1 - {a} * {b}, min=0))", "torch.mean(F.relu(1 - {a} * {b}))"),
        "tl.maximum(1.0 - a * b, 0.0)",
        targets=_SIGNS,
    ),
    PointwiseLoss(
        "soft_margin_loss",
        "the soft margin loss",
        ("torch.mean(torch.log(1 + torch.exp(-{a} * {b})))", "F.soft_margin_loss({a}, {b})"),
        "tl.log(1.0 + tl.exp(-a * b))",
        targets=_SIGNS,
    ),
    PointwiseLoss(
        "bce_with_logits_loss",
        "the binary cross-entropy of logits",
        ("F.binary_cross_entropy_with_logits({a}, {b})",),
        "tl.maximum(a, 0.0) - a * b + tl.log(1.0 + tl.exp(-tl.abs(a)))",
        targets="torch.rand({0})",
    ),
    PointwiseLoss(
        "kl_div",
        "the Kullback-Leibler divergence",
        ('F.kl_div(torch.log({a}), {b}, reduction="batchmean")',),
        "b * (tl.log(b) - tl.log(a))",
        targets="torch.rand({0}).softmax(dim=-1)",
        predictions="torch.rand({0}).softmax(dim=-1)",
        divisor="B",
        ranks=(2,),
    ),
)


@dataclass(frozen=True)
class RowLoss:
    """A mean of the losses of rows. `lines` give `loss` of a row `v`, and of what `load` reads."""

    name: str
    title: str
    forms: tuple[str, ...]
    pointers: str
    load: tuple[str, ...]
    lines: tuple[str, ...]
    parameter: str = ""
    values: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ("predictions", "targets")
    targets: str = "torch.randn({0}, {1})"


_LOAD = "{0} = tl.load({0}_ptr + row * R + cols, mask=mask, other=0.0)"
ROWWISE = (
    RowLoss(
        "cross_entropy_loss",
        "the cross-entropy of logits",
        ("F.cross_entropy({0}, {1})", "torch.nn.functional.cross_entropy({0}, {1})"),
        "v_ptr, t_ptr",
        ('v = tl.load(v_ptr + row * R + cols, mask=mask, other=-float("inf"))', "t = tl.load(t_ptr + row)"),
        (
            "m = tl.max(v, 0)",
            "s = tl.sum(tl.exp(v - m), 0)",
            "loss = m + tl.log(s) - tl.sum(tl.where(cols == t, v, 0.0), 0)",
        ),
        targets="torch.randint(0, {1}, ({0},))",
    ),
    RowLoss(
        "cosine_similarity_loss",
        "the cosine similarity loss",
        ("torch.mean(1 - F.cosine_similarity({0}, {1}, dim=1))", "1 - F.cosine_similarity({0}, {1}, dim=-1).mean()"),
        "a_ptr, b_ptr",
        (_LOAD.format("a"), _LOAD.format("b")),
        (
            "na = tl.maximum(tl.sqrt(tl.sum(a * a, 0)), 1e-8)",
            "nb = tl.maximum(tl.sqrt(tl.sum(b * b, 0)), 1e-8)",
            "loss = 1.0 - tl.sum(a * b, 0) / (na * nb)",
        ),
    ),
    RowLoss(
        "triplet_margin_loss",
        "the triplet margin loss",
        ("F.triplet_margin_loss({0}, {1}, {2}, margin={p})",),
        "a_ptr, b_ptr, c_ptr",
        (_LOAD.format("a"), _LOAD.format("b"), _LOAD.format("c")),
        (
            "p = tl.where(mask, a - b + 1e-6, 0.0)",
            "q = tl.where(mask, a - c + 1e-6, 0.0)",
            "loss = tl.maximum(tl.sqrt(tl.sum(p * p, 0)) - tl.sqrt(tl.sum(q * q, 0)) + {p}, 0.0)",
        ),
        "margin",
        ("0.5", "1.0", "2.0"),
        ("anchor", "positive", "negative"),
    ),
)


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of a loss."""
    loss = rng.choice(rng.unless([*POINTWISE, *ROWWISE], unseen, lambda item: item.name))
    if isinstance(loss, PointwiseLoss):
        module, kernel, slower = _pointwise(rng, loss)
    else:
        module, kernel = _rowwise(rng, loss)
        slower = (with_warps(kernel, 32 if int(module.constants[1][1]) <= _SHORT_ROW else 1),)
    return ModulePair(
        family=FAMILY.name,
        operator=loss.name,
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=kernel,
        style="fast",
        slower=slower,
    )


@dataclass(frozen=True)
class _Parameter:
    """A parameter of a loss: as the problem and as the kernel write it."""

    form: str = ""
    kernel: str = ""
    arguments: tuple[Argument, ...] = ()
    init: tuple[str, ...] = ()
    scalar: str = ""
    passed: str = ""


def _parameter(rng: Draw, name: str, values: tuple[str, ...]) -> _Parameter:
    if not name:
        return _Parameter()
    value = rng.choice(values)
    if rng.chance(0.4):
        return _Parameter(value, value)
    argument = Argument(name, value, "float", f"The {name} of the loss.")
    return _Parameter(f"self.{name}", name, (argument,), (f"self.{name} = {name}",), f", {name}", f", self.{name}")


def _mean_kernel(divisor: str) -> str:
    return (
        (
            "def mean_kernel(part_ptr, out_ptr, parts, divisor, BLOCK: tl.constexpr):\n"
            "    offsets = tl.arange(0, BLOCK)\n"
            "    v = tl.load(part_ptr + offsets, mask=offsets < parts, other=0.0)\n"
            "    tl.store(out_ptr, tl.sum(v, 0) / divisor)"
        )
        .replace(", divisor,", f", {divisor},")
        .replace("/ divisor", f"/ {divisor}")
    )


_SUM = """def sum_kernel(loss_ptr, part_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    loss = tl.load(loss_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(part_ptr + pid, tl.sum(loss, 0))"""


def _pointwise(rng: Draw, loss: PointwiseLoss) -> tuple[Module, str, tuple[str, ...]]:
    shape = rng.shape(rng.choice(loss.ranks))
    a, b = rng.choice(_NAMES)
    parameter = _parameter(rng, loss.parameter, loss.values)
    sizes = ", ".join(shape.names)
    module = Module(
        title=loss.title,
        inputs=(Input(a, loss.predictions.format(sizes)), Input(b, loss.targets.format(sizes))),
        forward=(f"return {rng.choice(loss.forms).format(a=a, b=b, p=parameter.form)}",),
        arguments=parameter.arguments,
        init=parameter.init,
        constants=shape.constants,
    )
    padded = "1.0" if loss.name == "kl_div" else "0.0"
    value = loss.kernel.format(p=parameter.kernel)
    partial = (
        f"def loss_kernel(a_ptr, b_ptr, part_ptr, n{parameter.scalar}, BLOCK: tl.constexpr):\n"
        "    pid = tl.program_id(0)\n    offsets = pid * BLOCK + tl.arange(0, BLOCK)\n    mask = offsets < n\n"
        f"    a = tl.load(a_ptr + offsets, mask=mask, other={padded})\n"
        f"    b = tl.load(b_ptr + offsets, mask=mask, other={padded})\n"
        f"    loss = {value}\n"
        "    tl.store(part_ptr + pid, tl.sum(tl.where(mask, loss, 0.0), 0))"
    )
    host = [f"{a}, {b} = {a}.contiguous(), {b}.contiguous()", f"n = {a}.numel()", "parts = triton.cdiv(n, 4096)"]
    host += [f"part = torch.empty(parts, device={a}.device)", f"out = torch.empty((), device={a}.device)"]
    host += [f"loss_kernel[(parts,)]({a}, {b}, part, n{parameter.passed}, BLOCK=4096)"]
    divisor = "n" if loss.divisor == "n" else f"{a}.shape[0]"
    host += [f"mean_kernel[(1,)](part, out, parts, {divisor}, BLOCK=triton.next_power_of_2(parts))", "return out"]
    mean = _mean_kernel(loss.divisor)
    written = partial.replace("part_ptr", "loss_ptr").replace(
        "tl.store(loss_ptr + pid, tl.sum(tl.where(mask, loss, 0.0), 0))",
        "tl.store(loss_ptr + offsets, loss, mask=mask)",
    )
    apart = [line.replace(f"{b}, part, n", f"{b}, loss, n") for line in host]
    apart.insert(3, f"loss = torch.empty(n, device={a}.device)")
    apart.insert(-2, "sum_kernel[(parts,)](loss, part, n, BLOCK=4096)")
    slower = (kernel_text([written, _SUM, mean], module, apart),)
    return module, kernel_text([partial, mean], module, host), slower


def _rowwise(rng: Draw, loss: RowLoss) -> tuple[Module, str]:
    rows, columns = rng.pick(128, 512, 1024, 4096), rng.pick(10, 100, 256, 1000, 1024, 4096)
    names = (
        rng.pick(("batch_size", "num_classes"), ("N", "C")) if loss.name.startswith("cross") else ("batch_size", "dim")
    )
    parameter = _parameter(rng, loss.parameter, loss.values)
    made = f"torch.randn({names[0]}, {names[1]})"
    targets = loss.targets.format(*names)
    values = [made, targets] if len(loss.inputs) == 2 else [made] * 3
    given = ", ".join(loss.inputs)
    module = Module(
        title=loss.title,
        inputs=tuple(Input(name, value) for name, value in zip(loss.inputs, values, strict=True)),
        forward=(f"return {rng.choice(loss.forms).format(*loss.inputs, p=parameter.form)}",),
        arguments=parameter.arguments,
        init=parameter.init,
        constants=((names[0], str(rows)), (names[1], str(columns))),
    )
    lines = [*loss.load, *(line.format(p=parameter.kernel) for line in loss.lines)]
    kernel = (
        f"def loss_kernel({loss.pointers}, part_ptr, R{parameter.scalar}, BLOCK: tl.constexpr):\n"
        "    row = tl.program_id(0)\n    cols = tl.arange(0, BLOCK)\n    mask = cols < R\n"
        + "".join(f"    {line}\n" for line in lines)
        + "    tl.store(part_ptr + row, loss)"
    )
    first = loss.inputs[0]
    host = [f"{given} = {', '.join(f'{name}.contiguous()' for name in loss.inputs)}", f"N, R = {first}.shape"]
    host += [f"part = torch.empty(N, device={first}.device)", f"out = torch.empty((), device={first}.device)"]
    host += [f"loss_kernel[(N,)]({given}, part, R{parameter.passed}, BLOCK=triton.next_power_of_2(R))"]
    host += ["mean_kernel[(1,)](part, out, N, N, BLOCK=triton.next_power_of_2(N))", "return out"]
    return module, kernel_text([kernel, _mean_kernel("n")], module, host)


FAMILY = Family("losses", tuple(loss.name for loss in (*POINTWISE, *ROWWISE)), draw)
