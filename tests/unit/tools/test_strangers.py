"""Operators of strangers' packages: a bundle has what an entry needs, and nothing else; each row of a table is one."""

import ast
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "tools" / "strangers"))
import operators
from bundle import Bundle, CannotBundleError
from packages import PACKAGES

MODULES = {
    "lib/__init__.py": "",
    "lib/tools/__init__.py": "from .sizes import LEAST as SMALLEST\nimport other\n",
    "lib/tools/sizes.py": "import math\nLEAST = 4\nMOST = math.inf\ndef unused(): pass\n",
    "lib/ops.py": (
        "import torch\nfrom lib.tools import SMALLEST\nfrom .settings import device\nfrom lib import tools\n"
        "if SMALLEST:\n    try:\n        from lib.tools.sizes import MOST\n    except ImportError:\n        pass\n"
        "def decorated(function):\n    return function\n"
        "@decorated\ndef inner(n):\n    return min(n, MOST) + SMALLEST\n"
        "def entry(n):\n    return inner(n), device()\n"
        "def by_module(n):\n    return tools.SMALLEST\n"
        "def by_value(n):\n    return [tools]\n"
    ),
    "lib/kernels.py": (
        "import torch\nfrom lib.shared import *\nfrom own_tools.sizes import LEAST\n"
        "def kernel(n):\n    return n + LEAST\n"
        "def unused(entry):\n    return entry\n"
        "try:\n    kernel = decorated(kernel)\nexcept RuntimeError:\n    pass\n"
        "def first(settings):\n    inner = settings + 1\n    return kernel(inner)\n"
    ),
    "lib/shared.py": "def decorated(function):\n    return lambda n: 10 * function(n)\n",
    "lib/settings.py": "def device():\n    return 'asks the machine'\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in MODULES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_definitions_come_with_what_they_name(folder: Path) -> None:
    text = Bundle(folder, "lib", {"device": "def device():\n    return 'stands in'"}).take("lib.ops", "entry")
    names: dict[str, object] = {}
    exec(text, names)
    assert names["entry"](3) == (7, "stands in")  # type: ignore[operator]
    assert "unused" not in text
    assert "lib" not in text
    assert "asks the machine" not in text
    assert "import math as" not in text
    assert "import math" in text


def test_a_kernel_comes_with_what_decorates_it_later(folder: Path) -> None:
    text = Bundle(folder, "lib", aliases={"own_tools": "lib.tools"}).take("lib.kernels", "first")
    names: dict[str, object] = {}
    exec(text, names)
    assert names["first"](1) == 60  # type: ignore[operator]
    assert "unused" not in text
    assert "asks the machine" not in text


def test_what_cannot_be_taken_is_named(folder: Path) -> None:
    with pytest.raises(CannotBundleError, match=r"missing: not in lib\.ops"):
        Bundle(folder, "lib").take("lib.ops", "missing")
    with pytest.raises(CannotBundleError, match="no such module"):
        Bundle(folder, "lib").take("lib.nothing", "entry")


def test_names_of_a_whole_module_become_names_of_the_bundle(folder: Path) -> None:
    text = Bundle(folder, "lib").take("lib.ops", "by_module")
    names: dict[str, object] = {}
    exec(text, names)
    assert names["by_module"](3) == 4  # type: ignore[operator]


def test_two_definitions_of_one_name_are_no_bundle(folder: Path) -> None:
    (folder / "lib" / "more.py").write_text(
        "from .ops import entry as other\ndef inner(): pass\ndef all():\n    return other, inner\n"
    )
    with pytest.raises(CannotBundleError, match="inner: both of"):
        Bundle(folder, "lib").take("lib.more", "all")


@pytest.mark.parametrize("package", PACKAGES)
def test_each_row_of_a_table_is_an_operator(package: str) -> None:
    for table in operators.FOLDER.glob(f"{package}*.txt"):
        for line in operators.rows(table):
            assert len(line) in ((4,) if table.stem == package else (3, 4, 5)), line
            for cell in line[1:4]:
                ast.parse(f"({cell},)")
