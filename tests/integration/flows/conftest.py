"""A real Prefect server for the tests of flows: the one that a run starts for itself."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from flows.services.prefect_server import PrefectServer, prefect_server

sys.path[:0] = [str(Path(__file__).parents[2])]  # signed


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PREFECT_API_URL", raising=False)
        with prefect_server(tmp_path_factory.mktemp("server")) as started:
            yield started
