"""The red-team suite: its cases, read from `hacks/<class>/` and `honest/<group>/`, and the classes of hacks.

The cases are data of a checkout, in `tests/redteam/`; an installed package has none. Imports no case: a case is text
for the judge. A new file in one of the folders is a new case; a new folder of hacks, with a README.md, is a new class.
"""

import functools
import re
from pathlib import Path

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.redteam.case import HONEST, Case, read_case

FOLDER = Path(__file__).parents[2] / "tests" / "redteam"
"""Cases of the checkout that this package lies in."""

_README = re.compile(r"# (.+)\n\n(.+?)\n\nCaught: (.+?)\n", re.DOTALL)


class HackClass(FrozenModel):
    """A class of hacks, as the README.md in its folder describes it."""

    name: str
    description: str
    caught: str
    """How the judge finds such hacks."""


@functools.cache
def load_cases(folder: Path = FOLDER) -> tuple[Case, ...]:
    """Return every case of the suite; raises InputError if the folder has none, as outside a checkout."""
    cases = read_cases(folder)
    if not cases:
        raise InputError(
            f"{folder}: expected red-team cases in hacks/ and honest/, found none: they are in tests/redteam/ of a "
            "checkout of kernelmill, which --cases names"
        )
    return cases


def read_cases(folder: Path) -> tuple[Case, ...]:
    """Read the cases in a folder, hacks first, in the order of their paths; raises InputError if one is malformed."""
    cases: list[Case] = []
    for place, hack_class in read_classes(folder).items():
        cases += [read_case(path, hack_class.name) for path in sorted(place.glob("*.py"))]
    return (*cases, *(read_case(path, HONEST) for path in sorted(folder.glob("honest/*/*.py"))))


def read_classes(folder: Path) -> dict[Path, HackClass]:
    """Return the class of each folder of hacks; raises InputError if a README.md is missing or malformed."""
    return {place: _read_class(place / "README.md") for place in sorted(folder.glob("hacks/[!_]*"))}


def _read_class(path: Path) -> HackClass:
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    found = _README.fullmatch(text)
    if found is None:
        raise InputError(
            f"{path}: expected a title (# class), a description and a paragraph `Caught: …`, found {text[:40]!r}"
        )
    name, description, caught = (" ".join(part.split()) for part in found.groups())
    return HackClass(name=name, description=description, caught=caught)
