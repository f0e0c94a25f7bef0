"""The end of a block waits for what is still to be sent, hardly after Ctrl-C."""

import contextlib
from collections.abc import Generator

import pytest

from tasks.pipeline.artifact_queue import INTERRUPTED_S, PATIENCE_S, patience_s


@pytest.mark.parametrize(
    ("ending", "expected"),
    [(None, PATIENCE_S), (ValueError, PATIENCE_S), (KeyboardInterrupt, INTERRUPTED_S), (SystemExit, INTERRUPTED_S)],
)
def test_patience_depends_on_how_a_block_ends(ending: type[BaseException] | None, expected: float) -> None:
    found: list[float] = []

    @contextlib.contextmanager
    def block() -> Generator[None]:
        try:
            yield
        finally:
            found.append(patience_s())

    with contextlib.suppress(ending or ()), block():
        if ending is not None:
            raise ending
    assert found == [expected]
