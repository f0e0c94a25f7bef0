"""Cache keys follow the code: what it computes, not how it is written down."""

import importlib
import sys
from pathlib import Path

import pytest

from kernels_eval import sources
from tasks.pipeline import code_version as versions


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small package whose modules count as ours."""
    folder = tmp_path / "little"
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "stage.py").write_text('"""Doc."""\ndef run():\n    from little import helper\n    return helper.f(1)\n')
    (folder / "helper.py").write_text("def f(x):\n    return x\n")
    (folder / "unrelated.py").write_text("y = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(versions, "_OUR_PACKAGES", ("little",))
    importlib.invalidate_caches()
    yield folder
    sys.modules.pop("little", None)
    clear()


def clear() -> None:
    versions.code_version.cache_clear()
    sources.forget()


def version() -> str:
    clear()
    return versions.code_version("little.stage")


def test_comments_docstrings_and_layout_do_not_count(package: Path):
    before = version()
    (package / "stage.py").write_text(
        '"""Another text."""\n\n\ndef run():\n    """Now documented."""\n    # why\n    from little import helper\n\n    return helper.f(1)\n'
    )
    assert version() == before


def test_a_helper_imported_inside_a_function_counts(package: Path):
    before = version()
    (package / "helper.py").write_text("def f(x):\n    return x + 1\n")
    assert version() != before


# `ast.dump` prints empty fields of it under one Python and not under the other.
ANY_PYTHON = """
def f(x, *rest: int, **more) -> str:
    return f"a{x!r:>{len('b')}} {more['k']}" if x else "it's" + b"\\x00".decode()
class A(dict):
    y: float = 1e-05
    z = None, ..., -1, "\\u00e9", f"it's {y}\\n"
"""


def test_the_version_is_the_same_under_every_python(package: Path):
    (package / "helper.py").write_text(ANY_PYTHON)
    clear()
    assert (
        sources.digests_behind("little.helper", lambda name: name == "little")["little.helper"][1] == "0094053e0386e193"
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [("None", "'None'"), ("1", "1.0"), ("1", "True"), ("(a, b)", "[a, b]"), ("b'x'", "'x'"), ("a", "'a'")],
)
def test_values_that_look_alike_count(package: Path, one: str, other: str):
    (package / "helper.py").write_text(f"x = {one}\n")
    before = version()
    (package / "helper.py").write_text(f"x = {other}\n")
    assert version() != before


def test_what_is_not_imported_does_not_count(package: Path):
    before = version()
    (package / "unrelated.py").write_text("y = 2\n")
    assert version() == before


def test_an_unknown_module_is_an_error(package: Path):
    with pytest.raises(ModuleNotFoundError):
        versions.code_version("little.none")


def test_content_digest_of_a_folder(tmp_path: Path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.py").write_text("1")
    (tmp_path / "a" / ".git").mkdir()
    before = versions.content_digest(tmp_path / "a")
    (tmp_path / "a" / ".git" / "index").write_text("changes all the time")
    assert versions.content_digest(tmp_path / "a") == before
    (tmp_path / "a" / "x.py").write_text("2")
    assert versions.content_digest(tmp_path / "a") != before
