"""Random choices of the corpus: shapes whose dimensions have names, and words."""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

MOST_ELEMENTS = 2**24
"""Elements of a tensor at most: 64 MiB of float32."""
_NAMES = {
    1: (("n",), ("size",), ("length",)),
    2: (("batch_size", "dim"), ("M", "N"), ("batch_size", "features"), ("rows", "cols"), ("batch_size", "input_size")),
    3: (("batch_size", "seq_len", "hidden"), ("batch_size", "dim1", "dim2"), ("batch_size", "channels", "length")),
    4: (("batch_size", "channels", "height", "width"), ("batch_size", "features", "dim1", "dim2")),
    5: (("batch_size", "channels", "depth", "height", "width"), ("batch_size", "features", "dim1", "dim2", "dim3")),
}
_SIZES = {
    1: ((2**18, 100000, 2**20, 999983, 2**22),),
    2: ((16, 64, 128, 1024, 2000, 4096), (16384, 1000, 4096, 2000, 512, 8192, 1024)),
    3: ((8, 16, 32, 64), (128, 256, 100, 512), (256, 512, 64, 300, 1024)),
    4: ((4, 8, 16, 64), (16, 32, 64, 48), (32, 64, 128, 56), (32, 64, 128, 56)),
    5: ((2, 4, 8), (8, 16, 32), (8, 16), (16, 32, 28), (16, 32, 28)),
}


@dataclass(frozen=True)
class Shape:
    """Names and sizes of a tensor's dimensions."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.sizes)

    @property
    def elements(self) -> int:
        """Number of elements."""
        return math.prod(self.sizes)

    @property
    def constants(self) -> tuple[tuple[str, str], ...]:
        """The names and sizes, as a module's constants."""
        return tuple((name, str(size)) for name, size in zip(self.names, self.sizes, strict=True))

    def made(self, maker: str = "torch.randn") -> str:
        """Return the expression of a tensor of this shape."""
        return f"{maker}({', '.join(self.names)})"


class Draw(random.Random):
    """A generator of random numbers that also draws shapes and words."""

    def pick(self, *options: T) -> T:
        """Return one of the options."""
        return self.choice(options)

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.random() < probability

    def unless(self, options: Sequence[T], unseen: frozenset[str], name_of: Callable[[T], str]) -> list[T]:
        """Return the options whose name is not unseen."""
        return [option for option in options if name_of(option) not in unseen]

    def shape(self, rank: int | None = None, most: int = MOST_ELEMENTS, least: int = 2**15) -> Shape:
        """Return a shape of `rank` dimensions (None: 1 to 5) with `least` to `most` elements."""
        rank = rank or self.pick(1, 2, 2, 2, 2, 3, 3, 4, 4, 5)
        names = self.choice(_NAMES[rank])
        while True:
            shape = Shape(names, tuple(self.choice(sizes) for sizes in _SIZES[rank]))
            if least <= shape.elements <= most:
                return shape

    def long_rows(self) -> Shape:
        """Return a shape of few rows, each too long for one block."""
        length = self.pick(65536, 100000, 131072, 200000, 262144, 393216)
        rows = self.choice([rows for rows in (16, 32, 64) if rows * length <= MOST_ELEMENTS])
        return Shape(self.choice(_NAMES[2]), (rows, length))

    def tensor(self) -> str:
        """Return the function that fills a tensor, most often `torch.randn`."""
        return self.pick("torch.randn", "torch.randn", "torch.randn", "torch.rand")

    def doc(self, text: str, indent: int, often: float = 0.75) -> str:
        """Return a docstring, or nothing; `indent` in spaces."""
        if not self.chance(often):
            return ""
        pad = " " * indent
        return f'{pad}"""\n{pad}{text}\n{pad}"""\n' if self.chance(0.6) else f'{pad}"""{text}"""\n'
