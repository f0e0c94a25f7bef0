"""Settings of the problem set."""

from typing import Literal

from pydantic import Field

from kernels_eval.settings import FrozenModel


class ProblemsConfig(FrozenModel):
    """Where problems come from, and how they are split."""

    source: Literal["generated", "kernelbench", "jsonl", "parquet", "huggingface"] = "generated"
    """`generated`: the bundled suite. Otherwise the format of what lies at `path`."""
    path: str | None = None
    """File or folder to load; needed unless the source is `generated`."""
    seed: int = Field(default=0, ge=0)
    """Seed of the generated suite and of the split. Held-out problems depend on nothing else."""
    train: int = Field(default=800, ge=1)
    """Training problems (at most; external sources may hold fewer)."""
    heldout: int = Field(default=96, ge=1)
    """Held-out problems; no composition of them is in the training problems."""
    levels: tuple[int, ...] = (1, 2, 3)
    """Levels to keep."""
