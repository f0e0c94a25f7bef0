"""Signatures that docs/update.md shows are those of the functions, defaults included."""

import importlib
import inspect
import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "update.md"
MODULES = [
    importlib.import_module(f"tasks.{name}")
    for name in (
        "update.advantages", "update.losses", "update.kl", "update.corrections", "update.credit_assignment",
        "training.scoring",
    )
]  # fmt: skip
SHOWN = re.findall(r"`(?:[a-z]+\.)?([a-z_]+)\(([^`]*)\)`", PAGE.read_text(encoding="utf-8"))
_SHAPE = re.compile(r" \[[^\]]*\]( or \[[^\]]*\])?")


def test_many_are_shown() -> None:
    assert len(SHOWN) > 25


@pytest.mark.parametrize(("name", "shown"), SHOWN, ids=[name for name, _ in SHOWN])
def test_a_signature_is_the_functions(name: str, shown: str) -> None:
    (function, *_) = [vars(module)[name] for module in MODULES if name in vars(module)]
    parameters = inspect.signature(function).parameters
    stated = [part.partition("=") for part in _SHAPE.sub("", " ".join(shown.split())).split(", ") if part != "*"]
    assert [parameter for parameter, _, _ in stated] == list(parameters)
    for parameter, _, default in stated:
        if default:
            assert parameters[parameter].default == _value(default)


def _value(text: str) -> object:
    words = {"None": None, "True": True, "False": False}
    return text.strip('"') if text.startswith('"') else words[text] if text in words else float(text)
