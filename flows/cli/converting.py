"""`kernelmill policy convert`: checkpoints between Megatron and Hugging Face, and from DeepSpeed ZeRO and GGUF."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli import groups

if TYPE_CHECKING:
    from extras.convert.memory_plan import MemoryPlan


class Target(StrEnum):
    """Formats that can be written."""

    HUGGINGFACE = "huggingface"
    TORCH_DIST = "torch_dist"
    MP_RANK = "mp_rank"


class Dtype(StrEnum):
    """Types of the written weights."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class TransformerImpl(StrEnum):
    """Megatron's layers."""

    TRANSFORMER_ENGINE = "transformer_engine"
    LOCAL = "local"


def add_to(app: typer.Typer) -> None:
    """Add the command of this group."""
    groups.policy.command("convert")(convert)


def convert(
    source: Annotated[Path, typer.Argument(help="Checkpoint: Megatron, DeepSpeed ZeRO, Hugging Face, or a GGUF file.")],
    destination: Annotated[Path | None, typer.Argument(help="Folder to write; it must not exist.")] = None,
    to: Annotated[Target, typer.Option(help="Format to write.")] = Target.HUGGINGFACE,
    like: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Hugging Face folder of the model: config.json and tokenizer.")
    ] = None,
    dtype: Annotated[Dtype | None, typer.Option(help="Type of the written weights; default: as stored.")] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            min=1, max=1_000_000_000, help="Tokens without padding, if neither --like nor the checkpoint tells."
        ),
    ] = None,
    tensor_parallel: Annotated[int, typer.Option(min=1, max=65_536, help="Tensor-parallel ranks to write.")] = 1,
    pipeline_parallel: Annotated[int, typer.Option(min=1, max=65_536, help="Pipeline stages to write (mp_rank).")] = 1,
    expert_parallel: Annotated[
        int, typer.Option(min=1, max=65_536, help="Expert-parallel ranks to write (mp_rank).")
    ] = 1,
    vocabulary_divisor: Annotated[
        int, typer.Option(min=1, max=1_000_000_000, help="Megatron's --make-vocab-size-divisible-by.")
    ] = 128,
    transformer_impl: Annotated[
        TransformerImpl, typer.Option(help="Megatron's layers, which decide some names.")
    ] = TransformerImpl.TRANSFORMER_ENGINE,
    plan: Annotated[bool, typer.Option("--plan", help="Only print the planned memory.")] = False,
) -> None:
    """Convert a checkpoint weight by weight; print the planned and the measured memory."""
    from rich.console import Console

    from extras.convert.convert import ConvertOptions, prepare
    from kernels_eval.errors import InputError

    if destination is not None and destination.exists():
        raise InputError(f"{destination}: exists; expected the name of a new folder")
    if destination is None and not plan:
        raise InputError("DESTINATION: found none, expected the name of a new folder, or --plan")
    options = ConvertOptions.model_validate(
        {
            "to": to.value,
            "like": like,
            "dtype": None if dtype is None else dtype.value,
            "vocabulary": vocabulary,
            "tensor_parallel": tensor_parallel,
            "pipeline_parallel": pipeline_parallel,
            "expert_parallel": expert_parallel,
            "vocabulary_divisor": vocabulary_divisor,
            "transformer_impl": transformer_impl.value,
        }
    )
    console = Console(highlight=False, soft_wrap=True)
    conversion = prepare(source, options)
    console.print(f"{source}: {conversion.origin.format} → {to}")
    console.print(memory_line(conversion.memory))
    if plan or destination is None:
        return
    with console.status("") as status:
        conversion.write(destination, lambda done, total: status.update(f"{done} of {total} weights"))
    console.print(f"{destination}: written; peak memory {_peak_bytes() / 2**30:.2f} GiB")


def memory_line(memory: "MemoryPlan") -> str:
    """Return the planned memory as text."""
    gib = 2**30
    return (
        f"weights {memory.weights / gib:.2f} GiB; planned peak memory {memory.peak / gib:.2f} GiB "
        f"({memory.working / gib:.2f} of weights); the largest set of shards has {memory.shard_set / gib:.2f} GiB"
    )


def _peak_bytes() -> int:
    """Return the largest resident memory of this process so far."""
    import re
    import resource
    import sys

    status = Path("/proc/self/status")
    if status.is_file():  # getrusage counts the parent's memory from before this program was loaded
        found = re.search(r"^VmHWM:\s+(\d+) kB$", status.read_text(encoding="utf-8"), re.MULTILINE)
        if found:
            return int(found[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
