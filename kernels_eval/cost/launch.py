"""Launch: one kernel launch and its counts, taken while it was interpreted. Validated, since it crosses processes."""

import math
from typing import Annotated, Literal

from pydantic import Field

from kernels_eval.frozen import FrozenModel

DTYPE_NAMES = (
    "float16", "bfloat16", "float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
    "uint64", "bool", "complex64", "complex128", "float8_e4m3fn", "float8_e5m2",
)  # fmt: skip
"""Element types that can be sent as raw bytes."""
MAX_ARGUMENTS = 256
"""Arguments of a launch."""
Size = Annotated[int, Field(ge=0, le=1 << 40)]
Count = Annotated[float, Field(ge=0, le=1e18, allow_inf_nan=False)]
Name = Annotated[str, Field(max_length=200)]
Operation = Literal[
    "fp32", "alu", "integer", "sfu", "fp64", "exchange", "atomic", "dot_half", "dot_tf32", "dot_byte", "dot_fp32",
    "dot_fp64", "access", "reduction",
]  # fmt: skip
"""Operations of a processor, by the unit that limits its rate.

`fp32`, `alu`, `sfu`, `fp64`: instructions of one lane in the floating-point pipe, in the pipe of comparisons,
selections and bits, in the special function unit, in double precision. `integer`: additions and comparisons of
integers, most of which compute addresses, of which a compiler keeps one for several elements. `exchange`: values
passed between the lanes of a reduction. `atomic`: lanes of the warps whose atomics are
carried out, once for each round of a warp. `dot_…`: floating-point operations
of matrix products by the type of their operands. `access`, `reduction`: loads, and reductions, of whole programs,
each of which waits.
"""

SECTOR_BYTES = 32
"""Least that a GPU reads or writes at once."""
SECTOR_ELEMENTS = 8
"""Elements whose atomics meet. Bytes would fill at another number of rows for each type, and rows are reduced."""
AMD_OPTIONS = ("waves_per_eu", "matrix_instr_nonkdim", "kpack", "allow_flush_denorm", "schedule_hint")
"""Options that Triton's launcher takes on AMD's devices alone."""
LAUNCH_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "launch_cooperative_grid", *AMD_OPTIONS)
"""Options of a launch that decide what a compiled kernel needs, and where it can be launched."""
HostWait = Literal["read", "synchronise", "upload"]
"""Reason of the device's wait: a value that host code reads, a synchronisation, an upload of what host code made."""


class Constant(FrozenModel):
    """A compile-time argument: plain JSON, the name of a Triton type, the number of a device function, or a tuple."""

    kind: Literal["plain", "dtype", "kernel", "tuple"] = "plain"
    value: bool | int | float | Annotated[str, Field(max_length=1000)] | None = None
    items: Annotated[tuple["Constant", ...], Field(max_length=1000)] = ()
    """Those of a tuple."""
    fields: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    """Those of a named tuple."""


class Launch(FrozenModel):
    """One launch: the kernel and arguments to compile, and the counts."""

    kernel: Name
    """Name of the decorated function."""
    kernel_number: Annotated[int, Field(ge=-1)] = -1
    """Number of its source (kernels_eval.trace.schema); -1: an operator of PyTorch."""
    line: Annotated[int, Field(ge=0)] = 0
    """Line of the candidate's source that launched it; 0: not known."""
    grid: tuple[Size, Size, Size] | None = None
    """Programs in each direction; None: an operator of PyTorch, or an estimated number."""
    programs: Count
    """Size of the grid."""
    busy_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Mean work of a program over that of the program with the most."""
    most_accesses: Count = 0
    """Loads of the program with the most."""
    most_reductions: Count = 0
    """Reductions of the program with the most."""
    most_turns: Count = 0
    """Turns of the program with the most in which it waits for what it loads (kernels_eval.interpreter.load_turns)."""
    dram_bytes: Count = 0
    """Bytes of the distinct 32-byte sectors read, plus of those written."""
    l2_bytes: Count = 0
    """Bytes of the sectors that each load and store touches, summed over all of them."""
    lone_share: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of `l2_bytes` in sectors that an access touches without the other one of the same 64 bytes: a slice of the
    cache, which gives 64 in a clock, takes as long for one as for both."""
    operations: dict[Operation, Count] = Field(default_factory=dict)
    """Executed operations of all programs."""
    blocks: Annotated[dict[Name, dict[Operation, Count]], Field(max_length=32)] = Field(default_factory=dict)
    """Of `operations`, those of blocks of fewer than 1024 elements, and all loads and reductions, by the block's shape:
    `16x64`. What a block costs beside others does not follow from its elements alone."""
    written_bytes: Count = 0
    """Bytes of `dram_bytes` that were written."""
    again_bytes: Count = 0
    """Bytes of `dram_bytes` that were read where an earlier launch of the call had read or written."""
    reread_bytes: Count = 0
    """Bytes that a program read again after it had read more than 32 KB of others, and before another program did
    (kernels_eval.interpreter.rereads)."""
    reread_reach: Count = 0
    """Bytes that one program read in between, on average."""
    given_bytes: Count = 0
    """Bytes of `dram_bytes` that were read from memory that the candidate did not write: inputs, weights, constants."""
    asked_bytes: Count = 0
    """Bytes that the lanes of all loads and stores asked for; lanes that were masked off did not."""
    lane_bytes: Count = 0
    """Bytes that all lanes of one program would have asked for, on average."""
    contention: Count = 0
    """Atomics that follow one another on the sector with the most, in rounds (kernels_eval.interpreter.contention)."""
    same_address: Count = 0
    """Lanes of atomics on the address with the most."""
    largest_index: Count = 0
    """Largest 32-bit integer that was added to a pointer, or widened to 64 bits."""
    is_copy: bool = False
    """It only copied or rearranged its inputs (kernels_eval.interpreter.copy_detection)."""
    signature: dict[Name, Name] = Field(default_factory=dict, max_length=MAX_ARGUMENTS)
    """Type of each argument as Triton writes it (`*fp32`, `i32`, `constexpr`); of a tuple, a list of them in JSON."""
    constants: dict[Name, Constant] = Field(default_factory=dict, max_length=1000)
    """Values of the compile-time arguments, by name; of those within a tuple, by path (`sizes.2`)."""
    divisible: Annotated[tuple[Name, ...], Field(max_length=1000)] = ()
    """Arguments that are multiples of 16, by name or path."""
    options: dict[Name, int] = Field(default_factory=dict, max_length=16)
    """Those of LAUNCH_OPTIONS, where given."""
    host_wait: HostWait | None = None
    """Not a launch, but a wait for the host (kernels_eval.cost.host_waits)."""

    @property
    def warps(self) -> int:
        """Warps of a program; Triton's default is 4."""
        return self.options.get("num_warps", 4)

    @property
    def matrix_flops(self) -> float:
        """Floating-point operations of matrix products."""
        return math.fsum(count for name, count in self.operations.items() if name.startswith("dot_"))
