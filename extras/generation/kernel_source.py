"""Source of a decorator's kernel: a file, the folder of kernels that were found, or the service.

The folder has one file a problem, `<digest of the problem>.py`: the file of a job that found a kernel.
"""

import os
import time
from pathlib import Path
from typing import Any

import httpx

from extras.generation.config import TOKEN_VARIABLE
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.problem import Problem

_TIMEOUT_S = 5.0
_POLL_S = 0.5


class KernelSource:
    """Finds the kernel for a problem."""

    def __init__(self, url: str, folder: Path, wait_s: float, budget: int) -> None:
        """`wait_s`: time to wait for the service's search of `budget` answers."""
        self._url, self._folder, self._wait_s, self._budget = url.rstrip("/"), folder, wait_s, budget

    def find(self, source: str, file: str | Path | None = None) -> Path | None:
        """Return the file that defines `ModelNew`; None if nothing beats the original, or nothing is known yet.

        Raises InputError if `file` does not exist or the service refuses the problem, InfrastructureError if it cannot
        be reached.
        """
        if file is not None:
            if not Path(file).is_file():
                raise InputError(f"{file}: no such file")
            return Path(file)
        digest = Problem(problem_id="problem", source=source).digest
        path = self._folder / f"{digest}.py"
        if path.is_file():
            return path
        try:
            result = self._asked(source, digest)
        except httpx.HTTPError as error:
            raise InfrastructureError(f"{self._url}: {type(error).__name__} {error}".rstrip()) from error
        if result is None or result["outcome"] != "improved":
            return None
        self._folder.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        partial.write_text(result["source"], encoding="utf-8")
        partial.replace(path)
        return path

    def _asked(self, source: str, digest: str) -> dict[str, Any] | None:
        """Return the job's result; None if it has none in time. The same question is the same job."""
        token = os.environ.get(TOKEN_VARIABLE)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        with httpx.Client(base_url=self._url, headers=headers, timeout=_TIMEOUT_S, trust_env=False) as client:
            policy = client.get("/health").json()["policy_digest"]
            key = f"optimize-{digest}-{policy}-{self._budget}"
            body = {"problem_source": source, "budget": self._budget}
            job = _checked(client.post("/v1/kernels", json=body, headers={"Idempotency-Key": key}))
            deadline = time.monotonic() + self._wait_s
            while job["state"] in ("queued", "running") and time.monotonic() < deadline:
                time.sleep(_POLL_S)
                job = _checked(client.get(f"/v1/kernels/{job['id']}"))
        if job["state"] == "failed":
            raise InputError(f"{self._url}: {job['error']}")
        return job["result"]


def _checked(reply: httpx.Response) -> dict[str, Any]:
    if reply.is_success:
        return reply.json()
    text = f"{reply.request.url}: {reply.status_code} {' '.join(reply.text.split())[:300]}"
    raise InputError(text) if reply.status_code < 500 and reply.status_code != 429 else InfrastructureError(text)
