"""Fixtures that every test may use."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# The same examples in every run: what CI says of a commit must not depend on luck. `make slow` draws new ones.
settings.register_profile("fixed", derandomize=True, database=None, deadline=None)
settings.register_profile("drawn", print_blob=True, deadline=None)
settings.load_profile(PROFILE := os.environ.get("HYPOTHESIS_PROFILE", "fixed"))
if PROFILE == "fixed":
    # Hypothesis also tries constants that it reads from our modules: from those that happen to be loaded, so the order of tests would count.
    providers.is_local_module_file = lambda _path: False

# Before torch is imported anywhere: tests share two cores with Ray workers and judge processes.
os.environ.setdefault("OMP_NUM_THREADS", "2")
for name, value in {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "WANDB_MODE": "offline",
    "WANDB_ERROR_REPORTING": "false",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}.items():
    os.environ.setdefault(name, value)


@pytest.fixture(scope="session")
def ray_local() -> Iterator[None]:
    """A local Ray cluster for the whole test session."""
    import ray

    ray.init(
        "local", num_cpus=4, include_dashboard=False, object_store_memory=100 * 2**20, log_to_driver=False
    )  # also where another cluster runs on this machine
    yield
    ray.shutdown()
