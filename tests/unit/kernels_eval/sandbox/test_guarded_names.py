"""Built-in functions that a candidate gets, and what they refuse."""

import sys
from types import ModuleType

import pytest
import torch

from kernels_eval.sandbox.guarded_names import guarded_builtins

GUARDED = guarded_builtins()


class Own:
    """An object of a file's own."""

    def __init__(self) -> None:
        self.width = 3


@pytest.mark.parametrize("name", ["__dict__", "__globals__", "kernels_eval_memory", "__match_args__", "f_locals"])
def test_a_name_that_reaches_into_other_code_is_refused_however_it_was_made(name: str) -> None:
    for function, arguments in (("getattr", ()), ("setattr", (1,)), ("delattr", ()), ("hasattr", ())):
        with pytest.raises(AttributeError, match="reaches into other code"):
            GUARDED[function](Own(), name, *arguments)


def test_other_names_are_what_they_are() -> None:
    own = Own()
    GUARDED["setattr"](own, "depth", 4)
    assert (GUARDED["getattr"](own, "depth"), GUARDED["getattr"](own, "none", 7)) == (4, 7)
    assert GUARDED["vars"](own) == {"width": 3, "depth": 4}
    assert "width" in GUARDED["dir"](own)
    assert GUARDED["len"] is len


@pytest.mark.parametrize("of", [(), (Own,), (sys,), (ModuleType("m"),)])
@pytest.mark.parametrize("function", ["vars", "dir"])
def test_classes_and_modules_are_not_listed(function: str, of: tuple[object, ...]) -> None:
    with pytest.raises(TypeError, match="reaches into other code"):
        GUARDED[function](*of)


def test_a_module_that_leads_to_other_code_is_not_given_by_its_name() -> None:
    with pytest.raises(AttributeError, match="the module sys of another package"):
        GUARDED["getattr"](torch, "s" + "ys")
    assert GUARDED["getattr"](torch, "n" + "n") is torch.nn
