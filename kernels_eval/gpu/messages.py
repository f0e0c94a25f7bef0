"""What a candidate's process on a GPU may say. Everything is checked here, before the judge looks at it."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kernels_eval.frozen import FrozenModel
from kernels_eval.gpu.attribution import KernelRecord
from kernels_eval.sandbox.messages import FailedAnswer, OutputForm, StateAnswer
from kernels_eval.verdict import Resources

Milliseconds = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=1e4, allow_inf_nan=False)]


class CallOutputs(FrozenModel):
    """The outputs of one call. Their content lies in the shared device memory, where it has the form that was asked for."""

    structure: Annotated[str, Field(max_length=20_000)]
    """What the call returned, as kernels_eval.correctness.output_structure says it."""
    outputs: Annotated[tuple[OutputForm, ...], Field(max_length=256)]


class RoundAnswer(FrozenModel):
    """One round of calls: every call's outputs, and what was observed beside them."""

    kind: Literal["round"]
    calls: Annotated[tuple[CallOutputs, ...], Field(max_length=256)]
    device_ms: Annotated[tuple[Milliseconds, ...], Field(max_length=256)] = ()
    """By device events; empty where the round was not timed."""
    enqueue_s: Seconds = 0.0
    """What the host takes to enqueue one call (median)."""
    unjoined_s: Seconds = 0.0
    """For how long other streams went on after the default stream was done (median), where the device was waited for."""
    kernels: Annotated[tuple[KernelRecord, ...], Field(max_length=100_000)] = ()
    """What ran on the device, where the round was profiled."""
    threads: Annotated[int, Field(ge=0, le=100_000)] = 1
    """Threads with Python frames after the round."""
    resources: Annotated[tuple[Resources, ...], Field(max_length=1000)] = ()


DeviceAnswer = StateAnswer | FailedAnswer | RoundAnswer
DEVICE_ANSWER: TypeAdapter[DeviceAnswer] = TypeAdapter(Annotated[DeviceAnswer, Field(discriminator="kind")])
