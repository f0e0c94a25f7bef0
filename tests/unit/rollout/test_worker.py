"""Reports of the process that rolls out, from its start on."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InfrastructureError
from tasks.pipeline.references import CheckpointRef, ProblemSetRef
from tasks.problems.row import Split
from tasks.rollout.config import RolloutConfig
from tasks.rollout.worker import RolloutProgress, RolloutRequest, RolloutWorker


class WorkerWithoutServers(RolloutWorker):
    async def _engine_for(self, request: RolloutRequest) -> Any:
        logging.getLogger("kernelmill.rollout").warning("a server died and is started again: %s", "no memory")
        raise InfrastructureError("no server is left")


def test_what_is_logged_while_an_engine_starts_is_reported_even_where_it_fails(tmp_path: Path) -> None:
    request = RolloutRequest(
        policy=CheckpointRef(uri="policy", digest="p", weight_version=0),
        problems=ProblemSetRef(uri="problems", digest="q", train=1, heldout=1),
        split=Split.TRAIN,
        config=RolloutConfig(),
        judge=JudgeConfig(),
        run_id="run",
        iteration=0,
        seed=0,
        destination=tmp_path / "batch",
    )
    said: list[str] = []

    async def collect() -> None:
        async for report in WorkerWithoutServers().collect(request):
            assert isinstance(report, RolloutProgress)
            said.extend(record.getMessage() for record in report.records)

    with pytest.raises(InfrastructureError, match="no server is left"):
        asyncio.run(collect())
    assert said == ["a server died and is started again: no memory"]
