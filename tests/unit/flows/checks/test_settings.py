"""Settings that are wrong only in combination."""

from pathlib import Path

import pytest

from flows.checks.settings import check_settings
from flows.settings.configuration import load_configuration
from kernels_eval.errors import InputError

ONE_GPU = Path("deployments/configs/one-gpu.yaml")


@pytest.mark.parametrize(
    "overrides",
    [
        ["judge.workers=3"],
        ["judge.workers=4", "judge.device_memory_gb=14"],
        ["judge.device=auto", "judge.device_memory_gb=8"],
        ["rollout.judge_actors.count=1", "rollout.judge_actors.workers=3"],
    ],
)
def test_each_worker_has_memory_for_the_problems(overrides: list[str]) -> None:
    with pytest.raises(InputError, match=r"judge\.device_memory_gb: found \d+, expected [\d.]+ or more for \d workers"):
        check_settings(load_configuration(ONE_GPU, overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["judge.workers=4", "judge.device_memory_gb=18"],
        ["judge.workers=4", "judge.device_memory_gb=null"],
        ["judge.workers=3", "problems.sizes=small"],
        ["judge.workers=8", "judge.device=cpu"],
    ],
)
def test_memory_that_suffices_or_does_not_matter(overrides: list[str]) -> None:
    check_settings(load_configuration(ONE_GPU, overrides))
