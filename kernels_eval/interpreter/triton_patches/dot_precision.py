"""Interpreter process: precision of a `tl.dot` of float32 whose kernel names none.

Triton's compiler takes TF32 for each target whose tensor cores have it, and the exact product for others.
"""

from dataclasses import dataclass
from typing import Any

import triton.language as tl


@dataclass
class DotPrecision:
    """The targets' precision, and whether it has rounded a product."""

    default: str = "ieee"
    """`tf32` or `ieee`."""
    has_rounded: bool = False
    """True once a product of float32 was in TF32 whose kernel names no precision."""

    def chosen(self, dtype: Any) -> str:
        """Return the precision of a product of operands of a type."""
        self.has_rounded |= self.default == "tf32" and dtype.scalar is tl.float32
        return self.default


DOT_PRECISION = DotPrecision()
