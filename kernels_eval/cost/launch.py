"""Launch: one kernel launch and its counts, taken while it was interpreted. Validated, since it crosses processes."""

from typing import Annotated, Literal

from pydantic import Field

from kernels_eval.frozen import FrozenModel

DTYPE_NAMES = (
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "int32", "int64", "bool",
    "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
"""Element types that can be sent as raw bytes."""
Size = Annotated[int, Field(ge=0, le=1 << 40)]
Count = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
Name = Annotated[str, Field(max_length=200)]


class Constant(FrozenModel):
    """A compile-time argument: plain JSON, the name of a Triton type, or the number of a device function."""

    kind: Literal["plain", "dtype", "kernel"] = "plain"
    value: bool | int | float | Annotated[str, Field(max_length=1000)] | None = None


class Launch(FrozenModel):
    """One launch: the kernel and arguments to compile, and the counts."""

    kernel: Name
    """Name of the decorated function."""
    kernel_number: Annotated[int, Field(ge=-1)] = -1
    """Number of its source (kernels_eval.trace.schema); -1: an operator of PyTorch."""
    line: Annotated[int, Field(ge=0)] = 0
    """Line of the candidate's source that launched it; 0: not known."""
    programs: Count
    """Size of the grid."""
    dram_bytes: Count
    """Bytes of the distinct 32-byte sectors read, plus of those written."""
    l2_bytes: Count
    """Bytes of the sectors that each load and store touches, summed over all of them."""
    flops: Count
    """Floating-point operations of `tl.dot`."""
    vector_flops: Count = 0
    """Floating-point operations of everything else."""
    given_bytes: Count = 0
    """Bytes of `dram_bytes` that were read from memory that the candidate did not write: inputs, weights, constants."""
    is_copy: bool = False
    """It only copied or rearranged its inputs (kernels_eval.interpreter.copy_detection)."""
    signature: dict[Name, Name] = Field(default_factory=dict, max_length=64)
    """Type of each argument as Triton writes it (`*fp32`, `i32`, `constexpr`)."""
    constants: dict[Name, Constant] = Field(default_factory=dict, max_length=64)
    """Values of the compile-time arguments."""
    divisible: Annotated[tuple[Name, ...], Field(max_length=64)] = ()
    """Arguments that are multiples of 16."""
    options: dict[Name, int] = Field(default_factory=dict, max_length=16)
    """`num_warps`, `num_stages`, where given."""
    uncompilable: Name | None = None
    """Reason why the launch cannot be described to the compiler, e.g. a function as a compile-time argument."""
