"""Doors: a name is ours, a plugin's, or a path into the user's folder; the source behind it counts in keys."""

import importlib
import sys
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import ValidationError

from kernels_eval import doors, sources
from kernels_eval.doors import Door, files_of
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel, decisive_part, name_alone, named_code, with_foreign_source, with_source

DOOR = Door("shape", {"round": "operator:neg", "square": "operator:pos"}, "a function (float) -> float")


class Inner(FrozenModel):
    shape: Annotated[str, DOOR] = "round"


class Outer(FrozenModel):
    inner: Inner = Inner()
    other: Annotated[str, DOOR] = "square"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The user's folder: the current one, that nothing else makes importable."""
    monkeypatch.chdir(tmp_path)
    before, path = set(sys.modules), list(sys.path)
    sources.forget()
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        del sys.modules[name]
    importlib.invalidate_caches()
    sources.forget()


def test_a_name_of_ours_and_a_path_are_loaded(here: Path):
    (here / "my_shapes.py").write_text("def flat(x):\n    return 0.0\n")
    assert DOOR.load("round")(1.5) == -1.5
    assert DOOR.load("my_shapes:flat")(1.5) == 0


def test_a_module_in_a_package_of_the_folder_is_found(here: Path):
    (here / "mine" / "deep").mkdir(parents=True)
    (here / "mine" / "__init__.py").write_text("")
    (here / "mine" / "deep" / "__init__.py").write_text("")
    (here / "mine" / "deep" / "shapes.py").write_text("from ..base import ZERO\ndef flat(x):\n    return ZERO\n")
    (here / "mine" / "base.py").write_text("ZERO = 0\n")
    assert DOOR.load("mine.deep.shapes:flat")(1) == 0
    before = DOOR.source_of("mine.deep.shapes:flat")
    (here / "mine" / "base.py").write_text("ZERO = 0.5\n")
    sources.forget()
    assert DOOR.source_of("mine.deep.shapes:flat") != before, "a relative import counts"


def test_an_installed_module_is_not_hidden_by_a_file_of_the_folder(here: Path):
    (here / "operator.py").write_text("def neg(x):\n    return 'wrong'\n")
    (here / "pydantic.py").write_text("def neg(x):\n    return 'wrong'\n")
    assert DOOR.load("round")(1.5) == -1.5
    with pytest.raises(InputError, match="has no 'neg'"):
        DOOR.load("pydantic:neg")


def test_an_unknown_name_lists_what_there_is():
    with pytest.raises(InputError) as refused:
        DOOR.load("oval")
    assert (
        str(refused.value) == "shape: expected one of round, square, or package.module:name of your own, found 'oval'"
    )
    with pytest.raises(ValidationError, match="one of round, square, or package"):
        Inner(shape="oval")
    assert Inner(shape="nowhere:oval").shape == "nowhere:oval", "read without importing anything"


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_module:f", "there is no module no_such_module"),
        ("shapes.below:f", "there is no module shapes.below"),
        ("shapes:oval", "it defines flat"),
        ("needs:f", "its module needs no_such_library"),
        ("breaks:f", "cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_sentence(here: Path, path: str, words: str):
    (here / "shapes.py").write_text("from operator import neg\ndef flat(x):\n    return 0.0\n")
    (here / "needs.py").write_text("import no_such_library\n")
    (here / "breaks.py").write_text("1 / 0\n")
    with pytest.raises(InputError, match=words):
        DOOR.verify(path)


def test_an_entry_point_of_an_installed_package_is_a_name(here: Path, monkeypatch: pytest.MonkeyPatch):
    info = here / "plugin-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[kernelmill.shape]\noval = plugin_shapes:oval\n")
    (here / "plugin_shapes.py").write_text("def oval(x):\n    return 2.0\n")
    monkeypatch.syspath_prepend(str(here))
    doors._plugins.cache_clear()
    try:
        assert DOOR.names == ("oval", "round", "square")
        assert Inner(shape="oval").shape == "oval"
        assert DOOR.load("oval")(1) == 2
        assert not DOOR.is_ours("oval")
        before = DOOR.source_of("oval")
        (here / "plugin_shapes.py").write_text("def oval(x):\n    return 3.0\n")
        sources.forget()
        assert DOOR.source_of("oval") != before
    finally:
        doors._plugins.cache_clear()


def test_the_source_behind_a_name_counts_in_a_key(here: Path):
    (here / "my_shapes.py").write_text("from factors import FACTOR\ndef scaled(x):\n    return FACTOR * x\n")
    (here / "factors.py").write_text("FACTOR = 2\n")
    (here / "unrelated.py").write_text("X = 1\n")
    value = Outer(inner=Inner(shape="my_shapes:scaled"))

    def key() -> object:
        sources.forget()
        return decisive_part(value, of_code=with_source)

    before = key()
    (here / "unrelated.py").write_text("X = 2\n")
    (here / "my_shapes.py").write_text("from factors import FACTOR\n\n\ndef scaled(x):  # why\n    return FACTOR * x\n")
    assert key() == before, "layout and files that are not imported do not count"
    (here / "factors.py").write_text("FACTOR = 3\n")
    assert key() != before
    assert decisive_part(value) == {"inner": {"shape": "my_shapes:scaled"}, "other": "square"}


def test_of_our_own_code_a_key_may_leave_out_the_source(here: Path):
    (here / "my_shapes.py").write_text("def flat(x):\n    return 0.0\n")
    ours = Door("shape", files_of("kernels_eval.backends", "BACKEND"), "a back end")
    assert with_foreign_source(ours, "triton") == "triton"
    assert with_source(ours, "triton") != name_alone(ours, "triton")
    assert with_foreign_source(ours, "my_shapes:flat").startswith("my_shapes:flat ")


def test_every_setting_that_names_code_is_found():
    assert [(name, value) for name, _, value in named_code(Outer())] == [("inner.shape", "round"), ("other", "square")]


def test_the_modules_of_the_folder_are_shipped(here: Path):
    (here / "alone.py").write_text("def f(x):\n    return x\n")
    (here / "mine").mkdir()
    (here / "mine" / "__init__.py").write_text("")
    (here / "mine" / "shapes.py").write_text("def f(x):\n    return x\n")
    (here / "unused.py").write_text("")
    DOOR.load("alone:f"), DOOR.load("mine.shapes:f")
    assert doors.sources_here() == [here / "alone.py", here / "mine"]


@pytest.mark.parametrize(
    "text", ["def f():\n    return 1\n", "def f(a, b):\n    return 1\n", "def f(*, x):\n    return 1\n"]
)
def test_a_function_with_other_arguments_is_refused_before_it_is_called(here: Path, text: str):
    (here / "my_shapes.py").write_text(text)
    with pytest.raises(InputError, match=r"my_shapes:f: expected a function \(float\) -> float, found a function \("):
        DOOR.load("my_shapes:f")


@pytest.mark.parametrize(
    "text", ["def f(a, b=1): ...\n", "def f(*a): ...\n", "class f:\n    def __init__(self, x): ...\n"]
)
def test_further_arguments_may_have_defaults(here: Path, text: str):
    (here / "my_shapes.py").write_text(text)
    assert DOOR.load("my_shapes:f") is not None


def test_what_is_declared_by_a_decorator_is_listed(here: Path):
    (here / "my_estimators.py").write_text(
        "from tasks.update.doors import estimator\n@estimator(compares='turns')\ndef rank(scores, groups, mask): ...\n"
    )
    with pytest.raises(InputError, match=r"it defines .*\brank$"):
        DOOR.load("my_estimators:rnak")


def test_an_estimator_with_other_arguments_is_refused():
    from tasks.update.doors import estimator

    with pytest.raises(
        InputError, match=r"mine: with compares='turns' expected the arguments \(scores, groups, mask\)"
    ):

        @estimator(compares="turns")
        def mine(scores):  # pyright: ignore[reportUnusedFunction]
            return scores
