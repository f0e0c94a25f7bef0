"""Syntax trees that several threads build at once."""

import ast
import gc
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from kernels_eval import syntax


@pytest.fixture
def collections_that_let_others_run() -> Iterator[None]:
    """A garbage collection while a tree is built runs code, as finalizers do, and another thread goes on meanwhile."""

    def give_way(*_: Any) -> None:
        time.sleep(1e-5)

    threshold = gc.get_threshold()
    gc.callbacks.append(give_way)
    gc.set_threshold(50)
    yield
    gc.set_threshold(*threshold)
    gc.callbacks.remove(give_way)


@pytest.mark.usefixtures("collections_that_let_others_run")
def test_threads_at_different_depths_of_the_stack() -> None:
    source = Path(__file__).read_text()

    def at_depth(depth: int) -> ast.Module:
        return at_depth(depth - 1) if depth else syntax.syntax_tree(source)

    expected = ast.dump(ast.parse(source))
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(at_depth, [index % 10 * 5 for index in range(40)]))
    assert {ast.dump(tree) for tree in trees} == {expected}


def test_a_source_that_is_refused_beside_a_librarys_thread_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = [SystemError("AST constructor recursion depth mismatch (before=93, after=78)")] * 3
    parse = ast.parse

    def forgetful(source: str) -> ast.Module:
        if refusals:
            raise refusals.pop()
        return parse(source)

    monkeypatch.setattr(syntax.ast, "parse", forgetful)
    assert ast.dump(syntax.syntax_tree("x = 1")) == ast.dump(parse("x = 1"))
    assert refusals == []


def test_what_is_not_python_is_refused_at_once() -> None:
    with pytest.raises(SyntaxError):
        syntax.syntax_tree("x =")
