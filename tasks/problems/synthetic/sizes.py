"""Sizes that generated problems are drawn from, by the setting `problems.sizes`, for known and for new shapes."""

from dataclasses import dataclass
from typing import Literal

SizesName = Literal["small", "gpu"]


@dataclass(frozen=True)
class Sizes:
    """Choices for each size of a problem."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    matmul_rows: tuple[int, ...]
    matmul_columns: tuple[int, ...]
    inner: tuple[int, ...]


@dataclass(frozen=True)
class SizeRange:
    """Sizes of all problems but those of the tier `new_shapes`, and the sizes of these."""

    known: Sizes
    new: Sizes


_SMALL_ROWS, _SMALL_NEW_ROWS = (4096, 8192, 16384), (3072, 6144, 12288)

SIZES: dict[SizesName, SizeRange] = {
    "small": SizeRange(
        Sizes(_SMALL_ROWS, (64, 96, 128, 160, 200, 256), _SMALL_ROWS, (32, 48, 64), (32, 64, 96)),
        Sizes(_SMALL_NEW_ROWS, (80, 112, 144, 192, 224, 320), _SMALL_NEW_ROWS, (40, 80, 96), (48, 80, 128)),
    ),
    # x is read and the output written once, 8 bytes an element: 25 to 540 MB, with a second input 800 MB. That is 10 to
    # 300 us at 80 % of an H100's 3.35 TB/s, and as much again for each operator that is not fused. Rows of up to 2048
    # columns: a tile stays in registers.
    "gpu": SizeRange(
        Sizes(
            rows=(8192, 16384, 32768),
            columns=(384, 512, 768, 1000, 1536, 2048),
            matmul_rows=(32768, 65536, 131072),
            matmul_columns=(64, 96, 128),
            inner=(128, 256, 512),
        ),
        Sizes(
            rows=(12288, 24576),
            columns=(448, 640, 896, 1200, 1792),
            matmul_rows=(49152, 98304),
            matmul_columns=(80, 112),
            inner=(192, 384),
        ),
    ),
}
"""`small`: 5 to 15 us on a GPU, quick to run on a CPU. `gpu`: 10 us to 1 ms on a GPU."""
JUDGE_WORKER_GIB: dict[SizesName, float] = {"small": 2.5, "gpu": 5.5}
"""Device memory of one of the judge's workers at least, 1.5 of it for CUDA contexts. On an H100 problems of
`gpu` with tensors of 200 to 268 MB did not fit into 3.5 (20 of 886 verdicts, 2026-11-23), nor always into 4.5 (two
problems, one of them with tensors of 100 MB, 2026-11-25)."""
