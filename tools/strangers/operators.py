"""Operators of packages as problem and candidate: tables of one line an operator, in the folder `operators`.

A line has `module | inputs | reference | entry`: a module of the package, the inputs as source, the expected result as
an expression of a, b, c, …, and an expression of the package's own function. X, P, I and B stand for usual inputs.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bundle import Bundle
from packages import PACKAGES

FOLDER = Path(__file__).parent / "operators"
INPUTS = {
    "X": "torch.randn(128, 90)",
    "P": "(torch.rand(128, 90) + 0.5)",
    "I": "torch.randint(0, 64, (128, 90), dtype=torch.int32)",
    "B": "(torch.randn(128, 90) > 0)",
}
_HEAD = "import contextlib\nimport logging\nimport math\nimport torch\nimport torch.nn.functional as F\n"


@dataclass(frozen=True)
class Operator:
    """An operator of a package, and the problem that it answers."""

    package: str
    """Folder of the package."""
    module: str
    inputs: str
    reference: str
    entry: str

    @property
    def name(self) -> str:
        """Name of the module and of the package's function that is called."""
        return f"{self.module}: {', '.join(self._entries())}"

    @property
    def problem(self) -> str:
        """Source of the problem."""
        return (
            f"{_HEAD}import torch.nn as nn\n\nclass Model(nn.Module):\n    def forward(self, *given):\n"
            f"        {self._names}\n        return {self.reference}\n\n"
            f"def get_inputs():\n    return [{self.inputs}]\n\ndef get_init_inputs():\n    return []\n"
        )

    @property
    def _names(self) -> str:
        listed = ast.parse(f"[{self.inputs}]", mode="eval").body
        assert isinstance(listed, ast.List)
        return ", ".join("abcdefghijkl"[: len(listed.elts)]) + ", = given"

    def _entries(self) -> list[str]:
        tree = ast.parse(self.entry)
        stored = {part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        names = [part.id for part in ast.walk(tree) if isinstance(part, ast.Name) and part.id not in stored]
        return [name for name in dict.fromkeys(names) if len(name) > 1 and name not in ("torch", "triton", "tuple")]

    def candidate(self, folder: Path) -> str:
        """Return the candidate's source. Raises CannotBundleError if something of the package cannot be taken."""
        package = PACKAGES[self.package]
        module = f"{self.package}.{self.module}"
        made = package.made(folder) if package.made is not None else {}
        bundle = Bundle(folder, self.package, {**package.stand_ins, **made}, package.aliases)
        path = folder.joinpath(*module.split(".")).with_suffix(".py")
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        for word, (where, name) in package.first.items():
            if word in text:
                bundle.take(where, name)
        taken = bundle.take(module, *self._entries())
        return (
            f"{_HEAD}import triton\nimport triton.language as tl\n\n{taken}\n\nclass ModelNew(torch.nn.Module):\n"
            f"    def forward(self, *given):\n        {self._names}\n        return {self.entry}\n"
        )


def operators(package: str, folder: Path) -> Iterator[Operator]:
    """Yield the operators of a package's tables."""
    for cells in rows(FOLDER / f"{package}.txt"):
        module, inputs, reference, entry = cells
        yield Operator(package, module, inputs, reference, entry)
    if (FOLDER / f"{package}_pointwise.txt").exists():
        from pointwise import pointwise

        yield from pointwise(package, folder, rows(FOLDER / f"{package}_pointwise.txt"))


def rows(path: Path) -> Iterator[list[str]]:
    """Yield the cells of a table's lines."""
    for line in path.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)]
        for name, text in INPUTS.items():
            cells[1] = re.sub(rf"\b{name}\b", text, cells[1])
        yield cells
