"""Schema of a traced forward call: the device work that host code asked for; nothing else leaves the tracing process.

The candidate's host code runs in the tracing process, which holds no values, only the shapes of tensors
(kernels_eval.tracing.traced_tensor, kernels_eval.tracing.tracer). Its actions are recorded as a program: storages,
operators of PyTorch, kernel launches, uploads of the host code's own constants. The judge checks the program (these
models, kernels_eval.correctness.allowed_operators); the interpreter process runs it (kernels_eval.interpreter.process).

Storage numbers: 0 … inputs, FIRST_WEIGHT … weights that the judge sets, FIRST_OWN … allocations of the host code.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, TypeAdapter

from kernels_eval.cost.launch import DTYPE_NAMES, MAX_ARGUMENTS, Name, Size
from kernels_eval.frozen import FrozenModel
from kernels_eval.sandbox.messages import FailedAnswer, StateAnswer

FIRST_WEIGHT = 1 << 20
FIRST_OWN = 1 << 21
ADDRESS_SPACE = 1 << 40
"""Bytes from one address that `data_ptr()` gives to the next storage's: a number of all of them fits an int64."""
MAX_LAUNCHES = 4096
MAX_COMMANDS = 20_000
Number = Annotated[int, Field(ge=0, le=1 << 40)]
DtypeName = Annotated[str, Field(max_length=20, pattern="|".join(f"^{name}$" for name in DTYPE_NAMES))]
Text = Annotated[str, Field(max_length=1000)]
Identifier = Annotated[str, Field(max_length=200, pattern=r"^[\p{XID_Start}_][\p{XID_Continue}]*$")]
"""A name in Python, which may have letters beyond ASCII."""


Fields = Annotated[tuple[Annotated[Identifier, Field(pattern="^[^_]")], ...], Field(max_length=500)]
"""Names of the fields of named tuples."""


class View(FrozenModel):
    """A strided tensor over a storage. Strides and offset in elements."""

    kind: Literal["view"] = "view"
    storage: Number
    dtype: DtypeName
    shape: Annotated[tuple[Size, ...], Field(max_length=16)]
    strides: Annotated[tuple[Size, ...], Field(max_length=16)]
    offset: Size = 0

    @property
    def numel(self) -> int:
        """Number of elements."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def reach(self) -> int:
        """Elements of the storage that the view spans, from the storage's start."""
        if self.numel == 0:
            return self.offset
        return self.offset + 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))

    @property
    def is_expanded(self) -> bool:
        """True if the view contains an element of the storage more than once."""
        spans = sorted((stride, size) for size, stride in zip(self.shape, self.strides, strict=True) if size > 1)
        covered = 1
        for stride, size in spans:
            if stride < covered:
                return self.numel > 0
            covered = stride * (size - 1) + covered
        return False


class Plain(FrozenModel):
    """A number, a string, a boolean or None."""

    kind: Literal["plain"] = "plain"
    value: bool | int | float | Text | None = None


class TypeName(FrozenModel):
    """A type: of PyTorch in an operator, of Triton in a launch."""

    kind: Literal["dtype"] = "dtype"
    name: Name


class KernelReference(FrozenModel):
    """A kernel or device function, by its number."""

    kind: Literal["kernel"] = "kernel"
    kernel: Number


class Sequence(FrozenModel):
    """A list or tuple."""

    kind: Literal["sequence"] = "sequence"
    fields: Fields = ()
    """Those of a named tuple."""
    items: Annotated[tuple["Value", ...], Field(max_length=1000)]


class Descriptor(FrozenModel):
    """A tensor descriptor made on the host (`TensorDescriptor`)."""

    kind: Literal["descriptor"] = "descriptor"
    base: View
    shape: Annotated[tuple[Size, ...], Field(max_length=5)]
    strides: Annotated[tuple[Size, ...], Field(max_length=5)]
    block_shape: Annotated[tuple[Size, ...], Field(max_length=5)]
    padding: Literal["zero", "nan"] = "zero"


Value = Annotated[View | Plain | TypeName | KernelReference | Sequence | Descriptor, Field(discriminator="kind")]


class Operate(FrozenModel):
    """One operator of PyTorch (`aten.<name>.<overload>`). It defines the new storages of its results."""

    kind: Literal["operate"] = "operate"
    name: Identifier
    overload: Identifier
    arguments: Annotated[tuple[Value, ...], Field(max_length=64)]
    named: Annotated[dict[Identifier, Value], Field(max_length=32)] = Field(default_factory=dict)
    results: Annotated[tuple[View | None, ...], Field(max_length=256)]

    @property
    def storages(self) -> frozenset[int]:
        """Numbers of the storages of its arguments, named ones too."""
        return storages_in((*self.arguments, *self.named.values()))


class Tuned(FrozenModel):
    """Configuration of an autotuned launch. Configurations are numbered by their place in the autotuner's list."""

    tuner: Number
    """Number of the autotuner, in the order of their first launches."""
    used: Number
    """Configuration of this launch."""
    kept: Annotated[tuple[Number, ...], Field(max_length=10_000)]
    """Configurations that the autotuner's pruning leaves at this size, of which it takes the fastest."""
    name: Annotated[str, Field(max_length=200)]
    """The configuration as Triton prints it."""
    is_trial: bool = False
    """True for a launch before the one whose result counts."""


def _with_warps(options: dict[str, int]) -> dict[str, int]:
    """Return the options of a launch; raises ValueError if its programs have no threads, by whose number costs go."""
    if options.get("num_warps", 1) < 1:
        raise ValueError("expected at least one warp")
    return options


class Reached(FrozenModel):
    """A storage that kernels reach by its address, which host code put into a tensor or passed as a number."""

    place: Number
    """Its address is `(place + 1) * ADDRESS_SPACE`."""
    view: View
    """The tensor whose address was asked for first."""


class LaunchKernel(FrozenModel):
    """One kernel launch."""

    kind: Literal["launch"] = "launch"
    kernel: Number
    arguments: Annotated[dict[Identifier, Value], Field(max_length=MAX_ARGUMENTS)]
    grid: tuple[Size, Size, Size]
    options: Annotated[dict[Identifier, int], Field(max_length=16), AfterValidator(_with_warps)] = Field(
        default_factory=dict
    )
    line: Annotated[int, Field(ge=0, le=1 << 30)] = 0
    """Line of the candidate's source that launched it."""
    reached: Annotated[tuple[Reached, ...], Field(max_length=10_000)] = ()
    has_allocator: bool = True
    """False if host code has set no allocator for memory that the kernel needs beside its arguments."""
    tuned: Tuned | None = None
    """None unless an autotuner with several configurations launched it."""

    @property
    def storages(self) -> frozenset[int]:
        """Numbers of the storages of its arguments, and of those that it reaches by address."""
        return storages_in((*self.arguments.values(), *(reached.view for reached in self.reached)))


def storages_in(values: Iterable[Value]) -> frozenset[int]:
    """Return the numbers of the storages of the views in arguments."""
    return frozenset(view.storage for value in values for view in views_in(value))


def views_in(value: Value) -> list[View]:
    """Return the views in an argument."""
    if isinstance(value, View):
        return [value]
    if isinstance(value, Descriptor):
        return [value.base]
    return [view for item in value.items for view in views_in(item)] if isinstance(value, Sequence) else []


class Upload(FrozenModel):
    """Constants of the host code: bytes of the message's payload become a storage."""

    kind: Literal["upload"] = "upload"
    storage: Number
    start: Size
    size: Size


class Free(FrozenModel):
    """Storages that the host code can no longer reach."""

    kind: Literal["free"] = "free"
    storages: Annotated[tuple[Number, ...], Field(max_length=100_000)]


class Synchronise(FrozenModel):
    """A wait of host code for the device."""

    kind: Literal["synchronise"] = "synchronise"
    reads: bool = False
    """It reads a value."""


Command = Annotated[Operate | LaunchKernel | Upload | Free | Synchronise, Field(discriminator="kind")]


class ModuleName(FrozenModel):
    """A global name of a kernel that refers to a module that kernels may use."""

    kind: Literal["module"] = "module"
    name: Literal["triton", "triton.language", "triton.language.math", "triton.language.extra", "libdevice", "math"]


class LanguageName(FrozenModel):
    """A global name of a kernel for a member of `triton.language` (`from triton.language import load`) or libdevice."""

    kind: Literal["language"] = "language"
    name: Identifier
    module: Literal["triton.language", "libdevice"] = "triton.language"


class Limits(FrozenModel):
    """A global that is `torch.finfo` or `torch.iinfo` of a type. Triton lets defaults of parameters use it."""

    kind: Literal["limits"] = "limits"
    name: DtypeName


class Constexpr(FrozenModel):
    """A global that is wrapped in `tl.constexpr`."""

    kind: Literal["constexpr"] = "constexpr"
    value: Annotated[Plain | TypeName | Sequence, Field(discriminator="kind")]


Default = Annotated[Constexpr | Plain | TypeName | Sequence, Field(discriminator="kind")]


class NamedTupleClass(FrozenModel):
    """A global that is a class of named tuples."""

    kind: Literal["named_tuple"] = "named_tuple"
    fields: Fields
    defaults: Annotated[tuple[Default, ...], Field(max_length=500)] = ()
    """Those of the last fields."""


Global = Annotated[
    ModuleName | LanguageName | Limits | NamedTupleClass | Constexpr | Plain | TypeName | KernelReference | Sequence,
    Field(discriminator="kind"),
]


class KernelSource(FrozenModel):
    """Source of one kernel or device function, and the meanings of its global names."""

    number: Number
    name: Identifier
    source: Annotated[str, Field(max_length=200_000)]
    """A function definition without decorators."""
    line: Annotated[int, Field(ge=1, le=1 << 30)]
    """Line of the candidate's source that `source` starts at."""
    globals: Annotated[dict[Identifier, Global], Field(max_length=500)] = Field(default_factory=dict)
    fields: Fields = ()
    """Fields of all named tuples of the file, which it may read."""
    is_constexpr_function: bool = False
    """`triton.constexpr_function`: runs on plain values at compile time."""
    is_noinline: bool = False
    """`triton.jit(noinline=True)`: compiled as a function of its own, which takes no blocks."""


class OutputView(FrozenModel):
    """One result of the forward call: a tensor, or something else (its type's name)."""

    view: View | None = None
    type: Annotated[str, Field(max_length=100)] = "Tensor"


class Part(FrozenModel):
    """Commands of the host code since the last part."""

    kernels: Annotated[tuple[KernelSource, ...], Field(max_length=500)] = ()
    commands: Annotated[tuple[Command, ...], Field(max_length=MAX_COMMANDS)] = ()

    @property
    def launches(self) -> list[LaunchKernel]:
        """The launches of kernels among its commands."""
        return [command for command in self.commands if isinstance(command, LaunchKernel)]


class TraceAnswer(Part):
    """The rest of one forward call, and its results."""

    kind: Literal["trace"]
    structure: Annotated[str, Field(max_length=20_000)]
    """Structure that contains the results (kernels_eval.correctness.outputs)."""
    outputs: Annotated[tuple[OutputView, ...], Field(max_length=256)]


class ReadAnswer(Part):
    """Request of the host code for one value (`.item()`), or a list (`.tolist()`), for which it waits."""

    kind: Literal["read"]
    view: View


TracingAnswer = TraceAnswer | ReadAnswer | StateAnswer | FailedAnswer
TRACING_ANSWER: TypeAdapter[TracingAnswer] = TypeAdapter(Annotated[TracingAnswer, Field(discriminator="kind")])
