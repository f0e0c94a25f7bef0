"""Requests and replies of the server. Requests use our names or those of KernelBench-style evaluation servers."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Discriminator, Field, JsonValue, Tag, model_validator
from pydantic_core import PydanticCustomError

from kernels_eval.config import Baseline
from kernels_eval.frozen import FrozenModel
from kernels_eval.pool.worker_status import WorkerReport
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM
from kernels_eval.verdict import Verdict

BackendName = Annotated[str, Field(pattern=r"^[a-z_]{1,40}$", examples=["triton", "cuda"])]
MAX_BATCH_ITEMS = 512
_MAX_TRIALS = 32
_MOST_UNKNOWN = 8
"""Unknown fields of an object that a refusal names."""
_EXAMPLE: JsonValue = {
    "problem_source": EXAMPLE_PROBLEM.lstrip(),
    "kernel_source": EXAMPLE_KERNEL.lstrip(),
    "backend": "triton",
}
_KERNELBENCH_EXAMPLE: JsonValue = {
    "original_model_src": EXAMPLE_PROBLEM.lstrip(),
    "custom_model_src": EXAMPLE_KERNEL.lstrip(),
    "num_correct_trials": 5,
    "num_perf_trials": 100,
    "backend": "triton",
}


class _Request(FrozenModel):
    """A part of a request. One with many fields too many is refused as a whole: naming each takes the server's time."""

    @model_validator(mode="before")
    @classmethod
    def _has_few_fields(cls, value: Any) -> Any:
        most = len(cls.model_fields) + _MOST_UNKNOWN
        if isinstance(value, dict) and len(value) > most:  # pyright: ignore[reportUnknownArgumentType]
            raise PydanticCustomError("too_many_fields", f"expected at most {most} fields, found {len(value)}")  # pyright: ignore
        return value  # pyright: ignore[reportUnknownVariableType]


class EvalSettings(_Request):
    """Settings for this kernel alone; the server's own apply to fields left out."""

    targets: tuple[Annotated[str, Field(pattern=r"^(cuda:[0-9]{2,3}|hip:gfx[0-9a-f]+)$")], ...] | None = Field(
        default=None, max_length=8
    )
    """Architectures that a Triton kernel must compile for."""
    compile: Literal["never", "correct", "always"] | None = None
    compile_share: float | None = Field(default=None, ge=0, le=1)
    """Share of the correct kernels that `compile: correct` compiles, without a GPU."""
    timeout_s: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """Wall time that the kernel may take; at most the server's."""
    trials: int | None = Field(default=None, ge=1, le=_MAX_TRIALS)
    full_size_share: float | None = Field(default=None, ge=0, le=1)
    """Secret share of the correct kernels that are run once more at the problem's own size, without a GPU."""
    policy: Literal["strict", "mixed"] | None = None
    portable: bool | None = None
    """Without a GPU: a kernel may not rely on zeros where a masked load without `other` leaves lanes undefined."""
    roofline_hardware: Literal["h100", "a100", "mi300x"] | None = None
    baseline: Baseline | None = None
    second_baseline: Baseline | None = None
    """Another baseline that is timed, on a GPU."""

    def given(self) -> dict[str, Any]:
        """Return the fields that are set."""
        return self.model_dump(exclude_none=True)


class EvalRequest(_Request):
    """One kernel to be judged."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    problem_source: str = Field(min_length=1)
    """Problem in KernelBench's format: defines `Model`, `get_inputs` and `get_init_inputs`."""
    kernel_source: str
    """Python source that defines `ModelNew`."""
    backend: BackendName | None = None
    """None: the server's."""
    settings: EvalSettings = EvalSettings()

    def as_own(self) -> Self:
        """Return itself."""
        return self


class KernelBenchRequest(BaseModel):
    """The same request in the names of KernelBench-style servers. Other names are accepted and ignored."""

    model_config = ConfigDict(
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
        json_schema_extra={"examples": [_KERNELBENCH_EXAMPLE]},
    )

    original_model_src: str = Field(min_length=1)
    """`problem_source`."""
    custom_model_src: str
    """`kernel_source`."""
    num_correct_trials: int | None = Field(default=None, ge=1)
    """`settings.trials`; more than 32 are taken as 32."""
    num_perf_trials: int | None = Field(default=None, ge=0)
    """Ignored: speed is estimated, or on a GPU timed until its interval is narrow."""
    backend: BackendName | None = None

    def as_own(self) -> EvalRequest:
        """Return the request in our names."""
        trials = min(self.num_correct_trials, _MAX_TRIALS) if self.num_correct_trials is not None else None
        return EvalRequest(
            problem_source=self.original_model_src,
            kernel_source=self.custom_model_src,
            backend=self.backend,
            settings=EvalSettings(trials=trials),
        )


NAMES = ("own names", "KernelBench's names")
"""Tags of the two kinds of request; the framework puts them into the location of an error."""


def _names_of(body: Any) -> str:
    """Return the tag of a request."""
    if isinstance(body, KernelBenchRequest):
        return NAMES[1]
    is_foreign = isinstance(body, dict) and ("original_model_src" in body or "custom_model_src" in body)
    return NAMES[1] if is_foreign else NAMES[0]


AnyEvalRequest = Annotated[
    Annotated[EvalRequest, Tag(NAMES[0])] | Annotated[KernelBenchRequest, Tag(NAMES[1])], Discriminator(_names_of)
]


class BatchRequest(_Request):
    """Many kernels to be judged."""

    items: list[AnyEvalRequest] = Field(min_length=1, max_length=MAX_BATCH_ITEMS)


class KernelBenchVerdict(Verdict):
    """A verdict that also has KernelBench's names: the reply to a request in those names."""

    correctness: bool
    """`correct`."""
    runtime: float
    """`candidate_ms`; -1 if there is no time."""
    ref_runtime: float
    """`reference_ms`; -1 if there is no time."""
    metadata: dict[str, str]
    """Error under KernelBench's keys, hardware, and source of the times."""


def in_kernelbench_names(verdict: Verdict) -> KernelBenchVerdict:
    """Return a verdict in both vocabularies."""
    metadata = {"hardware": verdict.hardware, "timing_source": verdict.timing_source or ""}
    if verdict.error_message is not None:
        name = {"compile_error": "compilation_error", "incorrect": "correctness_issue"}.get(
            verdict.status, "runtime_error"
        )
        metadata[name] = verdict.error_message
        metadata[f"{name}_name"] = verdict.rejection_reason or verdict.error_category or verdict.status
    return KernelBenchVerdict(
        **dict(verdict),
        correctness=verdict.correct,
        runtime=-1.0 if verdict.candidate_ms is None else verdict.candidate_ms,
        ref_runtime=-1.0 if verdict.reference_ms is None else verdict.reference_ms,
        metadata=metadata,
    )


class BatchLine(FrozenModel):
    """One line of the reply to a batch."""

    index: int = Field(ge=0)
    """Index of the item in the request."""
    verdict: KernelBenchVerdict | Verdict
    """In KernelBench's names too if the item was."""


class Health(FrozenModel):
    """State of the server in short."""

    status: Literal["starting", "ok", "degraded", "unavailable", "stopping"]
    """`degraded`: some workers are in quarantine; `unavailable`: all are."""
    judge_version: str
    workers: int
    in_service: int
    running: int
    """Kernels that are being judged."""
    waiting: int
    """Kernels that no worker has taken yet."""
    queue_limit: int
    uptime_s: float


class Workers(FrozenModel):
    """All workers, now."""

    workers: list[WorkerReport]


class ErrorReply(FrozenModel):
    """Reason of a refusal."""

    detail: str


class Misfit(BaseModel):
    """One error in a request."""

    loc: list[str | int]
    """Location, e.g. `["body", "items", 3, "problem_source"]`."""
    msg: str
    type: str


class InvalidReply(BaseModel):
    """Errors in a request."""

    detail: list[Misfit]
