"""Failures that are tried again, and how long a stage may take."""

import time
from types import SimpleNamespace

import pytest

from kernels_eval.errors import InfrastructureError, InputError, KernelmillError
from tasks.pipeline.retries import STAGE_NAMES, StagesConfig, StageTimeoutError, can_heal, limited
from tasks.training.faults import OutOfMemoryError
from tests.e2e.test_drill import NOT_IN_THE_DRILL, STAGES


def _ray_error(name: str, module: str = "ray.exceptions") -> Exception:
    return type(name, (Exception,), {"__module__": module})("gone")


@pytest.mark.parametrize(
    ("error", "heals"),
    [
        (InfrastructureError("a dead worker"), True),
        (StageTimeoutError("too long"), True),
        (ConnectionResetError("gone"), True),
        (_ray_error("ActorDiedError"), True),
        (_ray_error("RayTaskError"), False),
        (_ray_error("ActorDiedError", "elsewhere"), False),
        (OutOfMemoryError("half the tokens were too many as well"), False),
        (InputError("bad"), False),
        (KernelmillError("bad"), False),
        (ZeroDivisionError("a bug"), False),
    ],
)
def test_only_what_can_heal_is_tried_again(error: Exception, heals: bool):
    assert can_heal(None, None, SimpleNamespace(data=error)) is heals


def test_a_stage_has_its_own_limit_or_that_of_all():
    stages = StagesConfig(timeout_s=5, timeouts_s={"rollout": 60})
    assert (stages.timeout_of("rollout"), stages.timeout_of("update")) == (60, 5)
    assert StagesConfig().timeout_of("update") is None


def test_an_error_after_the_limit_is_a_timeout_and_one_before_it_is_itself():
    def fail_after(seconds: float, limit_s: float | None) -> None:
        with limited("rollout 0", limit_s):
            time.sleep(seconds)
            raise ConnectionError("its worker is gone")

    with pytest.raises(StageTimeoutError, match=r"rollout 0: not done within 0\.05 s"):
        fail_after(0.5, limit_s=0.05)
    for limit_s in (60, None):
        with pytest.raises(ConnectionError):
            fail_after(0, limit_s)


def test_the_drill_names_each_stage():
    assert set(STAGES) | NOT_IN_THE_DRILL == set(STAGE_NAMES)
    assert not set(STAGES) & NOT_IN_THE_DRILL
