"""Environment variables of every process of a run, set before Prefect, Ray or W&B is imported, unless they are."""

import contextlib
import io
import os
import sys
from importlib.util import find_spec
from pathlib import Path

from pydantic import ValidationError

from kernels_eval.errors import InputError
from kernels_eval.expectations import expected
from kernels_eval.loopback import keep_off_proxies

QUIET = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # A run has one server (flows.services.prefect_server). A process that cannot find it must fail, not start one.
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    # Distinguishes a long-running process from a dead one (flows/services/automations/vanished-runs.yaml).
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    # A state is sent for half a minute: a flow that ends has waited for its server before (flows.services.server_end).
    "PREFECT_CLIENT_MAX_RETRIES": "4",
    "RAY_USAGE_STATS_ENABLED": "0",
    # Without its control process Ray would end the driver after a minute; tasks.cluster.health notices it first.
    "RAY_gcs_rpc_server_reconnect_timeout_s": "86400",
    # Ray prints these to the terminal, with twenty lines of its log each; the run says in a line what it does about it.
    "RAY_DEDUP_LOGS_SKIP_REGEX": "Raylet is terminated|has been marked dead|A worker died or was killed",
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


_PROXIES = ("all_proxy", "http_proxy", "https_proxy")


def set_defaults() -> None:
    """Set the variables that are not set yet. Raises InputError for a variable that Prefect or httpx refuses."""
    check_proxies()
    keep_off_proxies()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    if "prefect" not in sys.modules:
        _import_prefect()


def check_proxies() -> None:
    """Raise InputError for a SOCKS proxy that httpx cannot use: Prefect's client then fails, also on loopback."""
    named = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    if find_spec("socksio") is not None or "*" in (entry.strip() for entry in named.split(",")):
        return  # with `*` httpx uses no proxy
    for name in (*_PROXIES, *map(str.upper, _PROXIES)):
        scheme = os.environ.get(name, "").lower().partition("://")[0]  # what follows may be a password
        if scheme.startswith("socks"):
            raise InputError(
                f"{name}: found a proxy {scheme}://…, which httpx takes with the package socksio alone: "
                "`pip install socksio`, or unset it"
            )


def check_temporary_folder() -> None:
    """Raise InputError if TMPDIR names no folder that can be written; Python would use another one without a word."""
    named = os.environ.get("TMPDIR")
    if named and not (Path(named).is_dir() and os.access(named, os.W_OK)):
        raise InputError(f"TMPDIR: found {named}, expected a folder that can be written")


def _import_prefect() -> None:
    with contextlib.redirect_stderr(io.StringIO()):  # it also prints the error, with a traceback's length
        try:
            from prefect.settings import get_current_settings

            get_current_settings()
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            found = str(first["input"])
            names = [name for name, value in os.environ.items() if name.startswith("PREFECT_") and value == found]
            where = " or ".join(names) or f"Prefect's setting {'.'.join(str(part) for part in first['loc'])}"
            raise InputError(f"{where}: found {found!r}, expected {expected(first)}") from error
