"""Kernels of the decorator: a given file, the folder of those found, or the service; what each failure is."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from extras.generation import kernel_source
from extras.generation.config import TOKEN_VARIABLE
from extras.generation.kernel_source import KernelSource
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.problem import EXAMPLE_PROBLEM, Problem

DIGEST = Problem(problem_id="problem", source=EXAMPLE_PROBLEM).digest
FOUND = {"outcome": "improved", "source": "class ModelNew: ..."}


class Service:
    """The service, as its client sees it: the states that a job passes, and the requests that came."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *jobs: dict[str, Any], status: int = 200) -> None:
        self._jobs, self._status = iter(jobs), status
        self.requests: list[httpx.Request] = []
        client = httpx.Client

        def opened(**settings: Any) -> httpx.Client:
            return client(**settings, transport=httpx.MockTransport(self._answer))

        monkeypatch.setattr(kernel_source.httpx, "Client", opened)
        monkeypatch.setattr(kernel_source.time, "sleep", lambda _: None)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        if request.url.path == "/health":
            return httpx.Response(200, json={"policy_digest": "policy"})
        return httpx.Response(self._status, json=next(self._jobs, {"detail": "no"}))


def job(state: str, result: dict[str, Any] | None = None, error: str = "") -> dict[str, Any]:
    return {"id": "j", "state": state, "result": result, "error": error}


def source(folder: Path, wait_s: float = 60.0) -> KernelSource:
    return KernelSource("http://service/", folder, wait_s, 8)


def test_a_kernel_that_is_found_is_kept_and_not_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service(monkeypatch, job("queued"), job("running"), job("finished", FOUND))
    path = source(tmp_path / "kernels").find(EXAMPLE_PROBLEM)
    assert path == tmp_path / "kernels" / f"{DIGEST}.py"
    assert path.read_text() == FOUND["source"]
    asked = len(service.requests)
    assert source(tmp_path / "kernels").find(EXAMPLE_PROBLEM) == path
    assert len(service.requests) == asked
    assert sorted(path.parent.iterdir()) == [path], "nothing half written is left"


def test_the_same_question_is_the_same_job_and_carries_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    service = Service(monkeypatch, *[job("finished", {"outcome": "unchanged"})] * 2)
    for _ in range(2):
        assert source(tmp_path).find(EXAMPLE_PROBLEM) is None
    keys = [request.headers["Idempotency-Key"] for request in service.requests if request.method == "POST"]
    assert keys == [f"optimize-{DIGEST}-policy-8"] * 2
    assert {request.headers["Authorization"] for request in service.requests} == {"Bearer secret"}


def test_a_search_that_takes_longer_gives_nothing_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Service(monkeypatch, job("queued"))
    assert source(tmp_path, wait_s=0.0).find(EXAMPLE_PROBLEM) is None


@pytest.mark.parametrize(
    ("jobs", "status", "raised"),
    [
        ([job("failed", error="no such device")], 200, InputError),
        ([], 422, InputError),
        ([], 429, InfrastructureError),
        ([], 503, InfrastructureError),
    ],
)
def test_refusals_are_the_callers_and_outages_the_services(
    jobs: list[dict[str, Any]], status: int, raised: type[Exception], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Service(monkeypatch, *jobs, status=status)
    with pytest.raises(raised, match="http://service"):
        source(tmp_path).find(EXAMPLE_PROBLEM)


def test_a_file_that_is_given_is_taken_or_missed_by_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("")
    assert source(tmp_path).find(EXAMPLE_PROBLEM, tmp_path / "mine.py") == tmp_path / "mine.py"
    with pytest.raises(InputError, match=r"other\.py: no such file"):
        source(tmp_path).find(EXAMPLE_PROBLEM, tmp_path / "other.py")
