"""A real Prefect server for the tests of flows: the one that a run starts for itself."""

from collections.abc import Iterator

import pytest

from flows.services.prefect_server import PrefectServer, prefect_server


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PREFECT_API_URL", raising=False)
        with prefect_server(tmp_path_factory.mktemp("server")) as started:
            yield started
