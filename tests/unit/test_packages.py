"""Rules for every module: it imports, it is small, and configurations are light."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("flows", "extras", "tasks", "kernels_eval")
CASES = ROOT / "tests" / "redteam"
ON_A_GPU = ROOT / "tools" / "gpu"
"""Programs that are long for the same reason as tests: the sources of kernels that they run."""


def sources(package: str) -> list[Path]:
    """Every module of a package; the red-team cases are data."""
    folders = (CASES / "hacks", CASES / "honest")
    return [path for path in (ROOT / package).rglob("*.py") if not any(map(path.is_relative_to, folders))]


MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in PACKAGES
    for path in sources(package)
)
LIGHT = [name for name in MODULES if name.endswith((".config", ".configuration"))] + ["kernels_eval", "flows.cli.main"]
HEAVY = ("torch", "triton", "ray", "prefect", "deepspeed", "transformers", "great_expectations", "wandb", "pandas")
CONFIG_MUST_NOT = {"torch", "ray", "prefect"}
MAX_LINES = 400  # of one idea; most have fewer than 150: a limit of 300 made people cut ideas in two
MAX_BODY = 60
NOT_A_VERB_OR_NOUN = {
    "What", "Which", "Where", "Who", "Whose", "When", "How", "Why", "Whether", "If", "As", "For", "From", "Of", "On", "In",
    "At", "By", "With", "After", "Before", "While", "There", "It", "They", "This", "None", "Not", "So", "And", "But",
}  # fmt: skip
NOT_IN_TESTS = {"What", "Which", "Where", "Who"}


def run(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter: what other tests imported does not count."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False, cwd=ROOT
    )


def test_every_module_imports():
    """In one process, so that torch and Ray are imported once; a failure names the module and the error.

    A module of extras.adapters may miss the peer that it is named after.
    """
    code = f"""
import importlib, json, traceback
failed = {{}}
for name in {MODULES!r}:
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if not name.startswith("extras.adapters." + (error.name or "").partition(".")[0]):  # a peer that is not installed
            failed[name] = traceback.format_exc(limit=-2)
    except BaseException:
        failed[name] = traceback.format_exc(limit=-2)
print("RESULT" + json.dumps(failed))
"""
    done = run(code)
    assert "RESULT" in done.stdout, done.stderr[-2000:]
    failed = json.loads(done.stdout.rpartition("RESULT")[2])
    assert not failed, "\n".join(f"{name}:\n{error}" for name, error in failed.items())


def test_configurations_import_nothing_heavy():
    """Each config module alone: `--help`, validation and preflight take no seconds for torch."""
    code = f"""
import importlib, json, sys
found = {{}}
for name in {LIGHT!r}:
    importlib.import_module(name)
    found[name] = [heavy for heavy in {HEAVY!r} if heavy in sys.modules]
print("RESULT" + json.dumps(found))
"""
    done = run(code)
    assert "RESULT" in done.stdout, done.stderr[-2000:]
    found = json.loads(done.stdout.rpartition("RESULT")[2])
    heavy = {name: sorted(CONFIG_MUST_NOT & set(modules)) for name, modules in found.items()}
    assert not any(heavy.values()), {name: modules for name, modules in heavy.items() if modules}


@pytest.mark.parametrize("package", [*PACKAGES, "benchmarks", "tools"])
def test_modules_are_small(package):
    paths = (path for path in sources(package) if path.parent != ON_A_GPU)
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in paths}
    long = {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > MAX_LINES}
    assert not long, f"split these at an idea (limit {MAX_LINES} lines): {long}"


def long_functions(source: str, limit: int) -> dict[str, int]:
    """Return the functions of a module whose bodies have more lines, with their number.

    A body begins below signature and docstring: a command's options are no code. What is nested counts for both.
    """
    import ast

    found: dict[str, int] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = node.body[0]
            above = first.lineno - 1 if ast.get_docstring(node) is None else first.end_lineno
            lines = (node.end_lineno or 0) - (above or 0)
            if lines > limit:
                found[f"{node.name}, line {node.lineno}"] = lines
    return found


@pytest.mark.parametrize("package", [*PACKAGES, "benchmarks", "tools"])
def test_functions_are_small(package):
    found = {path: long_functions(path.read_text(encoding="utf-8"), MAX_BODY) for path in sources(package)}
    long = {str(path.relative_to(ROOT)): functions for path, functions in found.items() if functions}
    assert not long, f"split these where there are two ideas (limit {MAX_BODY} lines of body): {long}"


def test_a_function_is_measured_without_its_options_and_docstring():
    command = 'async def command(\n    one,\n    two,\n):\n    """Do it.\n\n    Twice.\n    """\n    # why\n    one()\n'
    nested = "def outer():\n    def inner():\n        a()\n        b()\n    inner()\n"
    assert long_functions(command, 0) == {"command, line 1": 2}
    assert long_functions(nested, 1) == {"outer, line 1": 4, "inner, line 2": 2}
    assert not long_functions(nested, 4)


def test_every_module_has_a_docstring_and_no_package_is_a_drawer():
    import ast

    paths = [path for package in PACKAGES for path in sources(package)]
    silent = [path for path in paths if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert not silent, silent
    drawers = [path for path in paths if {path.stem, path.parent.name} & {"utils", "common", "helpers", "misc"}]
    assert not drawers, drawers


def test_docstrings_begin_with_a_verb_or_a_noun():
    import ast

    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    wrong: list[str] = []
    for path in (
        path for package in (*PACKAGES, "benchmarks", "tools", ".ci", "docs", "tests") for path in sources(package)
    ):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, documented):
                text = ast.get_docstring(node) or ""
                refused = NOT_IN_TESTS if path.is_relative_to(ROOT / "tests") else NOT_A_VERB_OR_NOUN
            else:  # the text below a field or a constant
                is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
                text = str(node.value.value) if is_text else ""
                refused = NOT_IN_TESTS
            if text.split(" ")[0].rstrip(",:") in refused:
                wrong.append(f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)}: {text.splitlines()[0]}")
    assert not wrong, "\n".join(wrong)


def test_lines_of_prose_end_before_column_121():
    """Of pages that people write; tables, code and what stands indented (a card of the site) may be longer."""
    wrong: list[str] = []
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "kernels_eval").rglob("*.md")]
    for path in (path for path in pages if "reference" not in path.parts):
        is_code = False
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            is_code ^= line.lstrip().startswith("```")
            if len(line) > 120 and not is_code and not line.startswith(("|", "    ", "```")):
                wrong.append(f"{path.relative_to(ROOT)}:{number}")
    assert not wrong, "\n".join(wrong)


def test_unit_tests_lie_in_the_rooms_of_what_they_test():
    here = ROOT / "tests" / "unit"
    folders = {path.parent.relative_to(here) for path in here.rglob("test_*.py")} - {Path("ci")}  # of `.ci`
    assert len(folders) > 40
    assert not [folder for folder in folders if not (ROOT / folder).is_dir() and not (ROOT / "tasks" / folder).is_dir()]
