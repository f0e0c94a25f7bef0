"""Settings of the judge and of its HTTP server, and the settings that a caller may change for one kernel."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, ValidationInfo, field_validator

from kernels_eval.doors import Door, files_of
from kernels_eval.errors import InputError
from kernels_eval.expectations import refusal
from kernels_eval.frozen import FrozenModel, Operational

_FULL_SIZE_SLACK = 3
"""A run at the full size is ended after so many times the time that it was estimated to take at most."""


_TARGET = re.compile(r"cuda:(\d{2,3})|hip:gfx[0-9a-f]{3,4}")
_CUDA_WITH_TF32 = re.compile(r"cuda:([89]\d|\d{3})$")
_HIP_WITH_TF32 = "hip:gfx942"
LEAST_DEVICE_GB = 2.5
"""Device memory of a worker at least, in GiB: three CUDA contexts of about 0.5, and 1 for tensors."""


AUTO = "auto"
"""In the place of a back end's name: the one that each source's imports name (kernels_eval.backends.backend_for)."""
BACKEND = Door(
    "backend",
    files_of("kernels_eval.backends", "BACKEND"),
    "an instance of kernels_eval.backends.Backend",
    lambda found: callable(getattr(found, "own_kernels", None)),
    other_values=(AUTO,),
)


Baseline = Literal["eager", "compile", "max-autotune"]


class JudgeConfig(FrozenModel):
    """Settings of the judge."""

    workers: Annotated[int, Operational] = Field(default=2, ge=1, le=512)
    """Kernels judged at the same time on this machine. On a CPU, one that takes long does not count."""
    backend: Annotated[str, BACKEND] = "triton"
    """Language of the kernels: the name of a module of kernels_eval.backends; `auto`: the one that each kernel's
    imports name, Triton where they name none. Or one of your own: `my_backends:HELION` (docs/doors.md)."""
    targets: tuple[str, ...] = ("cuda:90",)
    """Architectures that a Triton kernel must compile for: `cuda:80`, `cuda:90`, `cuda:100`, `hip:gfx942`."""
    compile: Literal["never", "correct", "always"] = "correct"
    """Compile to machine code: `never`; `correct`: what the interpreter found correct; `always`: whatever it found."""
    compile_share: float = Field(default=1.0, ge=0, le=1)
    """Without a GPU: share of the correct kernels that `compile: correct` compiles, drawn from the kernel's own text:
    the same ones in each run. The others' estimates know nothing of registers and spills. Held-out evaluation compiles
    all of them."""
    timeout_s: float = Field(default=10.0, ge=0.01, le=86_400)
    """Time of one kernel, in seconds of a usual core: a slower one gets up to four times as much
    (kernels_eval.sandbox.calibration). Time spent waiting for a busy core, or for the reference, is added, up to three
    times the limit; a kernel that waited longer for a core is an `infrastructure_error`."""
    compile_timeout_s: float = Field(default=30.0, ge=0.01, le=86_400)
    """Wall time of compiling one candidate's kernels."""
    compile_ahead: Annotated[bool, Operational] = False
    """On a GPU, compile Triton kernels that wait for a worker on spare processors, in a process without the GPU."""
    memory_mb: int = Field(default=2048, ge=256, le=2**24)
    """Address space that a candidate's process may use beyond what it was forked with."""
    trials: int = Field(default=2, ge=1, le=32)
    """Input sets (seed, distribution, shape) that every kernel must get right."""
    full_size_share: float = Field(default=0.03, ge=0, le=1)
    """Without a GPU: secret share of the correct kernels below `full_size_speedup` that are run once more at the
    problem's own size. 0: no kernel is, however fast."""
    full_size_speedup: float = Field(default=1.0, ge=0)
    """Without a GPU: a correct kernel whose estimated speed-up is at least this is always run once more at the
    problem's own size, or the largest that `full_size_s` allows: what is paid for its speed has been run there."""
    full_size_s: float = Field(default=5.0, gt=0, le=86_400)
    """Estimated CPU time that such a run may take, else a smaller size is run. Ended after three times as long, but not
    before `timeout_s`: on a busy machine an honest kernel would be a `timeout`."""
    policy: Literal["strict", "mixed"] = "strict"
    """`strict`: the candidate's own kernels compute everything. `mixed`: library calls are allowed beside them."""
    portable: bool = False
    """Without a GPU: what a masked load without `other` leaves undefined may not reach a result. Otherwise such lanes
    hold zero, as on every NVIDIA GPU, and the verdict has a warning. Always so if a target is AMD's."""
    public_messages: bool = False
    """Without a GPU: a failed kernel's message is that of a second run, whose inputs and weights are drawn from the
    problem and the kernel alone. It says nothing of secret draws, and is the same wherever the kernel is judged.
    Rollouts and SFT data set it where the policy reads messages (`rollout.episode.feedback: full`)."""
    cache_dir: Annotated[str | None, Operational] = None
    """Folder of the verdict cache, addressed by content. None: verdicts are cached in memory only."""
    cache_mb: Annotated[float, Operational] = Field(default=64, ge=0)
    """Memory for cached verdicts, about 3 KB each; the least recently used are dropped."""
    require_sandbox: Annotated[bool, Operational] = False
    """Refuse to start if the operating system lacks a part of the sandbox."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that runs kernels: `cpu`, in Triton's interpreter; `cuda`, on a GPU; `auto`: on a GPU if there is one."""
    roofline_hardware: Literal["h100", "a100", "mi300x"] = "h100"
    """GPU whose speed is estimated on a machine without a GPU."""
    baseline: Baseline = "eager"
    """Baseline of the speedup on a GPU: the reference as written, under torch.compile, or under torch.compile with mode
    max-autotune-no-cudagraphs, whose first call may take a minute or more."""
    second_baseline: Baseline | None = None
    """Another baseline, on a GPU, that is timed in the same rounds: `second_reference_ms` of the verdict."""
    device_memory_gb: Annotated[float | None, Operational] = Field(default=None, gt=0)
    """Device memory for all workers together, in GiB, of which each has an equal share. None: nine tenths of what is
    free when the first worker starts."""
    min_own_time: float = Field(default=0.3, ge=0, le=1)
    """Share of the device time that a kernel's own launches must take, by the profiler."""
    timing_precision: float = Field(default=0.01, gt=0, le=0.5)
    """Timing on a GPU is repeated until the three fastest rounds agree so far: half of their range, relative."""
    timing_rounds: int = Field(default=10, ge=2, le=1000)
    """Rounds of timed calls at most."""
    timing_s: float = Field(default=8.0, gt=0, le=86_400)
    """Wall time of all rounds at most."""

    @property
    def is_portable(self) -> bool:
        """True if kernels may rely on nothing that a target does not promise."""
        return self.portable or any(target.startswith("hip:") for target in self.targets)

    @property
    def dot_precision(self) -> Literal["ieee", "tf32"]:
        """Precision of a target's `tl.dot` of float32 whose kernel names none: TF32 where tensor cores have it."""
        lack = [target for target in self.targets if target != _HIP_WITH_TF32 and not _CUDA_WITH_TF32.match(target)]
        return "ieee" if self.targets and len(lack) == len(self.targets) else "tf32"

    @property
    def full_size_limit_s(self) -> float:
        """Wall time after which a run at the full size is ended."""
        return max(self.timeout_s, _FULL_SIZE_SLACK * self.full_size_s)

    @field_validator("targets")
    @classmethod
    def _are_known(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for target in value:
            found = _TARGET.fullmatch(target)
            if found is None or (found[1] and not 70 <= int(found[1]) < 130):
                raise ValueError("an NVIDIA GPU from cuda:70 to cuda:129 or an AMD GPU such as hip:gfx942")
        return value

    @field_validator("device_memory_gb")
    @classmethod
    def _is_enough_for_all_workers(cls, value: float | None, info: ValidationInfo) -> float | None:
        workers = info.data.get("workers", 1)
        if info.data.get("device") == "cuda" and value is not None and value < workers * LEAST_DEVICE_GB:
            raise ValueError(needed_device_memory(workers))
        return value


def needed_device_memory(workers: int) -> str:
    """Return how much device memory so many workers need at least, in words."""
    return f"at least {workers * LEAST_DEVICE_GB:.1f} for judge.workers = {workers}"


CHANGEABLE = (
    "backend", "targets", "compile", "compile_share", "timeout_s", "trials", "full_size_share", "policy", "portable",
    "roofline_hardware", "baseline", "second_baseline",
)  # fmt: skip
"""Settings that a caller may change for one kernel. The other fields of JudgeConfig belong to the machine."""


def with_settings(config: JudgeConfig, backend: str | None, settings: Mapping[str, Any]) -> JudgeConfig:
    """Return the configuration for one kernel. Raises InputError if a setting cannot be changed, or not to this value.

    `timeout_s` can be lowered, never raised: it bounds how long a kernel keeps a worker from others.
    """
    if backend is not None:
        settings = {**settings, "backend": backend}
    if not settings:
        return config
    unknown = sorted(settings.keys() - set(CHANGEABLE))
    if unknown:
        raise InputError(f"settings.{unknown[0]}: expected one of {', '.join(CHANGEABLE)}")
    try:
        changed = JudgeConfig.model_validate({**config.model_dump(), **settings})
    except ValidationError as error:
        raise InputError(refusal(error)) from error
    if changed.timeout_s > config.timeout_s:
        raise InputError(f"timeout_s: expected at most {config.timeout_s:g}, found {changed.timeout_s:g}")
    return changed


def changes_between(config: JudgeConfig, wanted: JudgeConfig) -> dict[str, Any] | None:
    """Return the settings with which a judge of `config` judges as `wanted` says; None if they are not changeable."""
    differing = (name for name in JudgeConfig.model_fields if getattr(config, name) != getattr(wanted, name))
    changes = {name: getattr(wanted, name) for name in differing}
    return changes if changes.keys() <= set(CHANGEABLE) and wanted.timeout_s <= config.timeout_s else None


TOKEN_VARIABLE = "KERNELMILL_JUDGE_TOKEN"
"""Environment variable with the bearer token that clients must send; unset or empty: no token is asked for."""


class ServerConfig(FrozenModel):
    """Settings of the judge's HTTP server."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=18188, ge=0, le=65535)
    """0: a free one."""
    queue_limit: int = Field(default=1024, ge=1)
    """Kernels under way or waiting, of all clients together; more are refused with 429."""
    max_problem_bytes: int = Field(default=64 << 10, ge=1)
    """Length of a problem's source. It is parsed in the server's own process, which answers nothing else meanwhile."""
    max_kernel_bytes: int = Field(default=256 << 10, ge=1)
    """Length of a kernel's source."""
    max_body_bytes: int = Field(default=16 << 20, ge=1)
    """Length of a request."""
    body_timeout_s: float = Field(default=30.0, gt=0)
    """Time that a client has for sending the head of a request, and again for its body."""
    shutdown_s: float = Field(default=20.0, ge=0)
    """Time that running evaluations have to end after SIGTERM; waiting ones are refused at once."""
