"""Environment variables that every process of a run shares. Set before Prefect, Ray or a tracker is imported.

Nothing here overrides what the user has set.
"""

import os

QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # There is one server (flows/services/prefect_server.py). A thread or process that does not know it must say so, not start another.
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    # What tells a run that works for long from one whose process is gone (deployments/automations/vanished-runs.yaml).
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray gives way to whatever else runs (nice 15): beside other work a stage would come to a stop.
    "RAY_worker_niceness": "0",
    "WANDB_ERROR_REPORTING": "false",
    "GX_ANALYTICS_ENABLED": "false",
    "TOKENIZERS_PARALLELISM": "false",
    # Threads that wait for each other spin only briefly: on a shared machine the default costs four fifths of the speed.
    "GOMP_SPINCOUNT": "10000",
    # Ray would otherwise replace accelerator variables in actors without GPUs, and warn of it in every process.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def set_defaults() -> None:
    """Set what is not set yet."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
