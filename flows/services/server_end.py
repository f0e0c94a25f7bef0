"""The end of a flow whose Prefect server is away: it waits for the server, and says so if that does not come back.

Prefect itself would try for minutes to tell it how the flow has ended.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager

from flows.services.prefect_server import BUSY_S, answers
from flows.services.server_keeper import kept
from kernels_eval.errors import InfrastructureError

_POLL_S = 0.5


@contextmanager
def server_awaited(api_url: str | None, timeout_s: float) -> Generator[None]:
    """Wait at the end of the block for the server, as long as it may come back, at most for the timeout.

    Raises InfrastructureError if it does not. After an exception of the block nothing is waited for.
    """
    yield
    if api_url is None:
        return
    keeper, deadline = kept.get(), time.monotonic() + timeout_s
    while not answers(api_url, BUSY_S):
        is_gone = keeper is not None and keeper.gone.is_set()
        if is_gone or time.monotonic() > deadline:
            if keeper is not None:
                keeper.give_up()
            waited = "" if is_gone else f" after {timeout_s:g} s (prefect.start_timeout_s)"
            raise InfrastructureError(
                f"Prefect's server at {api_url} does not answer{waited}: its page does not show how this run ends. "
                "Every finished stage is kept."
            )
        time.sleep(_POLL_S)
