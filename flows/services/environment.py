"""Environment variables of every process of a run, set before Prefect, Ray or W&B is imported, unless they are."""

import os

QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # A run has one server (flows.services.prefect_server). A process that cannot find it must fail, not start one.
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    # Distinguishes a long-running process from a dead one (flows/services/automations/vanished-runs.yaml).
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Ray's default is nice 15: beside other work a stage would come to a stop.
    "RAY_worker_niceness": "0",
    "WANDB_ERROR_REPORTING": "false",
    "GX_ANALYTICS_ENABLED": "false",
    "TOKENIZERS_PARALLELISM": "false",
    # OpenMP threads that wait spin only briefly: on a shared machine the default costs four fifths of the speed.
    "GOMP_SPINCOUNT": "10000",
    # Ray would otherwise replace accelerator variables in actors without GPUs, and warn about it in every process.
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}


def set_defaults() -> None:
    """Set the variables that are not set yet."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
