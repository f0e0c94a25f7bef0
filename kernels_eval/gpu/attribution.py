"""What a profile of one call says: whose kernels ran, where, and what share of the time was the candidate's own.

Pure: takes names and durations as CUPTI recorded them and the names of the kernels that the candidate's source defines.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from kernels_eval.frozen import FrozenModel
from kernels_eval.gpu import pause

_COPIES = re.compile(
    rf"^Memcpy|^Memset|at::native::.*(FillFunctor|direct_copy_kernel|CatArrayBatchedCopy)|^{pause.NAME}$"
)
"""Activities that only move, fill or wait: the library's, and the stopwatch's own between the calls. They count for nobody."""
_LIBRARY_NAME = re.compile(
    r"^(ampere|volta|turing|maxwell|hopper|blackwell|sm\d+)_|^nvjet|cutlass|xmma|cudnn|cublas|splitKreduce"
)
"""Names that library kernels have and that nobody gives a kernel of their own by accident."""
_LIBRARY_SPACES = frozenset({"at", "c10", "thrust", "cub", "cutlass", "cudnn", "cublasLt", "native"})


class KernelRecord(FrozenModel):
    """One activity on the device during a profiled call."""

    name: Annotated[str, Field(max_length=2000)]
    duration_ns: Annotated[int, Field(ge=0, le=10**13)]
    stream: Annotated[int, Field(ge=0, le=1 << 40)] = 0
    """0: the default stream."""


@dataclass(frozen=True)
class Coverage:
    """Shares of the device time of profiled calls."""

    own_ns: int
    library_ns: int
    copy_ns: int
    library_names: tuple[str, ...]
    """Distinct library kernels that compute."""
    uses_side_streams: bool
    """Some kernel that computes ran on another stream than the default one."""

    @property
    def computing_ns(self) -> int:
        """Time of everything that computes."""
        return self.own_ns + self.library_ns

    @property
    def own_share(self) -> float:
        """Time of the candidate's own kernels over that of everything that computes; 0 where nothing ran."""
        return self.own_ns / self.computing_ns if self.computing_ns else 0.0


def coverage_of(records: Sequence[KernelRecord], own_names: Collection[str]) -> Coverage:
    """Sort records into own, library and copies. A kernel is own only if its plain name is, and looks like no library's."""
    own = library = copies = 0
    names: list[str] = []
    uses_side_streams = False
    for record in records:
        mine = is_own(record.name, own_names)
        if not mine and _COPIES.search(record.name):
            copies += record.duration_ns
            continue
        uses_side_streams |= record.stream != 0
        if mine:
            own += record.duration_ns
        else:
            library += record.duration_ns
            if record.name not in names:
                names.append(record.name)
    return Coverage(own, library, copies, tuple(names), uses_side_streams)


def is_own(name: str, own_names: Collection[str]) -> bool:
    """True for a kernel that the source defines, named plainly or as a C++ signature (`void f<float>(float*)`)."""
    bare = name.replace("(anonymous namespace)::", "")
    *spaces, plain = re.split(r"[<(]", re.sub(r"^(?:static )?void ", "", bare), maxsplit=1)[0].strip().split("::")
    return plain in own_names and not _LIBRARY_SPACES.intersection(spaces) and not _LIBRARY_NAME.search(plain)


def suspicious_names(own_names: Collection[str]) -> list[str]:
    """Return names of own kernels that pass for a library's."""
    return sorted(name for name in own_names if _LIBRARY_NAME.search(name))
