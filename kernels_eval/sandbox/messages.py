"""What a candidate's processes may say. Everything is checked here, before the judge looks at it."""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from kernels_eval.cost.launch import DTYPE_NAMES, Launch, Name, Size
from kernels_eval.frozen import FrozenModel


class StateAnswer(FrozenModel):
    """The candidate is loaded; its parameters and buffers by name: type and shape."""

    kind: Literal["ready"]
    state: Annotated[
        dict[Name, tuple[Annotated[str, Field(max_length=20)], Annotated[tuple[Size, ...], Field(max_length=16)]]],
        Field(max_length=10_000),
    ]


class FailedAnswer(FrozenModel):
    """The candidate failed; it gains nothing by saying so."""

    kind: Literal["failed"]
    status: Literal["compile_error", "runtime_error", "rejected"]
    category: Annotated[str, Field(pattern=r"^[a-z_]{1,40}$")]
    message: Annotated[str, Field(max_length=2000)]


class OutputForm(FrozenModel):
    """One output: a tensor whose bytes follow, or something else."""

    kind: Literal["tensor", "other"]
    dtype: Annotated[str, Field(max_length=20, pattern="|".join(f"^{name}$" for name in DTYPE_NAMES))] = "float32"
    shape: Annotated[tuple[Size, ...], Field(max_length=16)] = ()
    type: Annotated[str, Field(max_length=100)] = "Tensor"
    expanded: bool = False


class OutputFacts(FrozenModel):
    """What the executor knows of one output beside its content."""

    origins: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=6, max_length=6)]
    """Elements by who wrote them last (kernels_eval.interpreter.memory_accesses.Origin)."""


class ExecutedAnswer(FrozenModel):
    """What the executor did. The outputs' bytes follow."""

    kind: Literal["executed"]
    launches: Annotated[tuple[Launch, ...], Field(max_length=100_000)] = ()
    outputs: Annotated[tuple[OutputFacts, ...], Field(max_length=256)] = ()
    value: bool | int | float | None = None
    """The value that was asked for."""
    wrote_weights: bool = False
    """A kernel has written into a weight or a buffer that the judge set."""


InterpreterAnswer = ExecutedAnswer | FailedAnswer
INTERPRETER_ANSWER: TypeAdapter[InterpreterAnswer] = TypeAdapter(
    Annotated[InterpreterAnswer, Field(discriminator="kind")]
)
