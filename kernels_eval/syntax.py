"""Syntax trees of Python sources, read from several threads at once."""

import ast
import threading
from contextlib import suppress

_ONE_AT_A_TIME = threading.RLock()
_ATTEMPTS = 20


def syntax_tree(source: str) -> ast.Module:
    """Return the syntax tree of a source. Raises what `ast.parse` raises.

    CPython before 3.13 counts the depth of a tree for all threads together and raises SystemError where two of them
    parse at once (python/cpython#106905). Our threads wait for each other; beside a library's thread it is tried again.
    """
    with _ONE_AT_A_TIME:
        for _ in range(_ATTEMPTS - 1):
            with suppress(SystemError):
                return ast.parse(source)
        return ast.parse(source)
