"""The judge's settings."""

from typing import Annotated, Literal

from pydantic import Field

from kernels_eval.frozen import FrozenModel, Operational


class JudgeConfig(FrozenModel):
    """How kernels are judged."""

    workers: Annotated[int, Operational] = Field(default=2, ge=1, le=512)
    """Kernels judged at the same time on this machine; one that takes long (on a CPU) does not count."""
    backend: str = Field(default="triton", pattern=r"^[a-z_]+$")
    """The language of the kernels: a module of kernels_eval.backends."""
    targets: tuple[str, ...] = ("cuda:90",)
    """Architectures that a Triton kernel must compile for: `cuda:80`, `cuda:90`, `cuda:100`, `hip:gfx942`."""
    compile: Literal["never", "correct", "always"] = "correct"
    """Compile to machine code: never; only what the interpreter found correct; or always, before running."""
    timeout_s: float = Field(default=10.0, gt=0)
    """Wall time that one kernel may take in all. Time in which others had the cores does not count, up to three times as much."""
    compile_timeout_s: float = Field(default=30.0, gt=0)
    """Wall time that compiling one candidate's kernels may take."""
    memory_mb: int = Field(default=2048, ge=256)
    """Address space that a kernel may add to the worker's own."""
    trials: int = Field(default=2, ge=1, le=32)
    """Input sets (seed, distribution, shape) that every kernel must get right."""
    policy: Literal["strict", "mixed"] = "strict"
    """`strict`: everything is computed by the candidate's own kernels. `mixed`: library calls are allowed beside them."""
    cache_dir: Annotated[str | None, Operational] = None
    """Folder of the content-addressed verdict cache; none: verdicts are cached in memory only."""
    cache_mb: Annotated[float, Operational] = Field(default=64, ge=0)
    """Memory that cached verdicts may take: about 3 KB each, the last that were asked for."""
    require_sandbox: Annotated[bool, Operational] = False
    """Refuse to start where the operating system cannot keep a candidate in."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where kernels run: Triton's interpreter on the CPU, or a GPU."""
    roofline_hardware: Literal["h100", "a100", "mi300x"] = "h100"
    """The machine whose speed is estimated where there is no GPU."""
    baseline: Literal["eager", "compile"] = "eager"
    """What a kernel's speed is compared with on a GPU: the reference as written, or under torch.compile."""
    min_own_time: float = Field(default=0.3, ge=0, le=1)
    """Share of the device time that a kernel's own launches must take, by the profiler."""
    timing_precision: float = Field(default=0.01, gt=0, le=0.5)
    """Timing on a GPU is repeated until both medians are known this well (half of a 95 % interval, relative)."""
    timing_rounds: int = Field(default=10, ge=2, le=1000)
    """Rounds of timed calls at most."""
    timing_s: float = Field(default=8.0, gt=0)
    """Wall time of all rounds at most."""
