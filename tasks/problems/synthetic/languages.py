"""Languages of the generated corpus, named as back ends are: styles of each, and a kernel in a style."""

import random
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kernels_eval.config import AUTO
from kernels_eval.errors import InputError
from tasks.problems.synthetic.composition import Composition
from tasks.problems.synthetic.cuda.sources import THREADS, cuda_source, draw_threads
from tasks.problems.synthetic.cuda.styles import CudaStyle, fastest_style, slow_styles, styles_of
from tasks.problems.synthetic.sources import FIXED_STYLES, Style, draw_passes, kernel_source
from tasks.problems.synthetic.tuning import draw_tuning

SLOW_STYLES = (Style.SMALL_BLOCKS, Style.EXTRA_PASSES, Style.STEPWISE)
Tuned = Literal["fixed", "varied"]


@dataclass(frozen=True)
class Wanted:
    """A kernel to be written."""

    composition: Composition
    style: str
    wrong: Collection[str]
    """Operators that are written with their mistake."""
    columns: int
    """Of the problem's output tile."""
    tuning: Tuned
    """`varied` draws launch parameters from `generator`."""
    generator: random.Random


class Language(ABC):
    """Writer of kernels for compositions, in one language."""

    @property
    @abstractmethod
    def all_styles(self) -> Sequence[str]:
        """Names of all styles."""

    @property
    def usual_styles(self) -> Sequence[str]:
        """Names of the styles that a corpus has if none are named."""
        return self.all_styles

    @abstractmethod
    def styles(self, composition: Composition) -> Sequence[str]:
        """Return the styles that the composition may be written in, in a fixed order."""

    @abstractmethod
    def slow_styles(self, composition: Composition) -> Sequence[str]:
        """Return the styles of earlier kernels in repairs that are right but slow."""

    @abstractmethod
    def fastest_style(self, composition: Composition) -> str:
        """Return the style that a repair of a slow kernel ends in."""

    @abstractmethod
    def write(self, wanted: Wanted) -> str:
        """Return a module that defines `ModelNew`."""


class _Triton(Language):
    @property
    def all_styles(self) -> Sequence[str]:
        return list(Style)

    @property
    def usual_styles(self) -> Sequence[str]:
        return FIXED_STYLES

    def styles(self, composition: Composition) -> Sequence[str]:
        return self.all_styles

    def slow_styles(self, composition: Composition) -> Sequence[str]:
        return SLOW_STYLES

    def fastest_style(self, composition: Composition) -> str:
        return Style.FUSED

    def write(self, wanted: Wanted) -> str:
        composition = wanted.composition
        is_drawn = wanted.tuning == "varied"
        tuning = draw_tuning(composition, wanted.columns, wanted.generator) if is_drawn else None
        style = Style(wanted.style)
        passes = draw_passes(composition, wanted.generator) if style is Style.PARTLY_FUSED else ()
        return kernel_source(composition, style, wanted.wrong, tuning, passes)


class _Cuda(Language):
    @property
    def all_styles(self) -> Sequence[str]:
        return list(CudaStyle)

    def styles(self, composition: Composition) -> Sequence[str]:
        return styles_of(composition)

    def slow_styles(self, composition: Composition) -> Sequence[str]:
        return slow_styles(composition)

    def fastest_style(self, composition: Composition) -> str:
        return fastest_style(composition)

    def write(self, wanted: Wanted) -> str:
        threads = draw_threads(wanted.generator) if wanted.tuning == "varied" else THREADS
        return cuda_source(wanted.composition, CudaStyle(wanted.style), wanted.wrong, threads)


class _Both(Language):
    """Styles of both languages, named `triton:fused` and so on; each style is as likely as any other."""

    _parts: Mapping[str, Language] = {"triton": _Triton(), "cuda": _Cuda()}

    @property
    def all_styles(self) -> Sequence[str]:
        return [f"{name}:{style}" for name, part in self._parts.items() for style in part.all_styles]

    @property
    def usual_styles(self) -> Sequence[str]:
        return [f"{name}:{style}" for name, part in self._parts.items() for style in part.usual_styles]

    def styles(self, composition: Composition) -> Sequence[str]:
        return [f"{name}:{style}" for name, part in self._parts.items() for style in part.styles(composition)]

    def slow_styles(self, composition: Composition) -> Sequence[str]:
        return [f"{name}:{style}" for name, part in self._parts.items() for style in part.slow_styles(composition)]

    def fastest_style(self, composition: Composition) -> str:
        return f"triton:{self._parts['triton'].fastest_style(composition)}"

    def write(self, wanted: Wanted) -> str:
        name, _, style = wanted.style.partition(":")
        return self._parts[name].write(replace(wanted, style=style))


@dataclass(frozen=True)
class _Some(Language):
    """Some of a language's styles."""

    language: Language
    chosen: Sequence[str]

    @property
    def all_styles(self) -> Sequence[str]:
        return self.chosen

    def styles(self, composition: Composition) -> Sequence[str]:
        return [style for style in self.language.styles(composition) if style in self.chosen]

    def slow_styles(self, composition: Composition) -> Sequence[str]:
        return [style for style in self.language.slow_styles(composition) if style in self.chosen]

    def fastest_style(self, composition: Composition) -> str:
        fastest, suiting = self.language.fastest_style(composition), self.styles(composition)
        return fastest if fastest in suiting else next(style for style in self.chosen if style in suiting)

    def write(self, wanted: Wanted) -> str:
        return self.language.write(wanted)


_LANGUAGES: dict[str, Language] = {"triton": _Triton(), "cuda": _Cuda(), AUTO: _Both()}
"""By back end."""


def language_of(backend: str, styles: Sequence[str] = ()) -> Language:
    """Return the language of a back end, or some of its styles: those expected to be fast first.

    Raises InputError if no corpus is generated in it, or it has no such style.
    """
    if backend not in _LANGUAGES:
        raise InputError(
            "sft.data.path: the generated corpus is of Triton or CUDA C++ kernels; name a file of pairs for "
            f"judge.backend = {backend}"
        )
    language = _LANGUAGES[backend]
    unknown = [style for style in styles if style not in language.all_styles]
    if unknown:
        known = ", ".join(language.all_styles)
        raise InputError(f"sft.data.styles: found {unknown[0]!r}, expected some of {known} (judge.backend = {backend})")
    return _Some(language, styles or language.usual_styles)
