"""Ray, Prefect's server, SGLang's servers."""

import shutil
from collections.abc import Sequence

from flows.checks.finding import Finding, failed, note, ok
from flows.checks.preflight import ANSWER_S, unhealthy_servers
from flows.checks.program import run_program
from flows.services.ray_cluster import check_address
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InputError


def ray(config: RunConfig) -> Finding:
    """The cluster answers; or a local one can be started."""
    try:
        check_address(config.ray)
    except InputError as error:
        return failed(
            "Ray",
            str(error),
            "`ray start --head` there, the same RAY_AUTH_TOKEN on both sides; or --set ray.address=null",
        )
    if config.ray.address is not None:
        return ok("Ray", f"{config.ray.address} answers")
    return ok("Ray", f"a local one of {config.ray.cpus or 'all'} CPUs is started with the run")


def prefect(_: RunConfig) -> Finding:
    """The server that the settings name answers; or the run starts one."""
    from prefect.settings import get_current_settings

    from flows.services.prefect_server import answers

    named = get_current_settings().api.url
    if named is None:
        return ok("Prefect server", "none is named: a run starts its own (SQLite, loopback)")
    if answers(named, ANSWER_S):
        return ok("Prefect server", f"{named} answers")
    return note(
        "Prefect server",
        f"nothing answers at {named}: a run starts its own",
        "`prefect server start`, or unset PREFECT_API_URL",
    )


def sglang(config: RunConfig) -> Finding:
    """Every named server is healthy; or the command that starts one exists."""
    rollout = config.rollout
    if rollout.engine != "sglang":
        return ok("SGLang", "not used: rollout.engine is transformers")
    if rollout.sglang_urls:
        bad = unhealthy_servers(rollout.sglang_urls)
        if bad:
            return failed("SGLang", "; ".join(bad), "start the servers, or mend rollout.sglang_urls (docs/sglang.md)")
        return ok("SGLang", f"{len(rollout.sglang_urls)} server(s) healthy")
    if config.ray.address is not None:
        return note("SGLang", "servers are started on the cluster; its nodes were not looked at")
    reason = _why_none_starts(rollout.sglang.command, rollout.sglang.environment)
    if reason is None:
        return ok("SGLang", f"{rollout.sglang.servers} server(s) are started with the run")
    return failed(
        "SGLang", reason, "install SGLang (an environment of its own) and name its Python in rollout.sglang.command"
    )


def _why_none_starts(command: Sequence[str], environment: dict[str, str]) -> str | None:
    """Return what keeps the configured command from starting a server, or None."""
    if shutil.which(command[0]) is None:
        return f"rollout.sglang.command: {command[0]}: no such program"
    if "-m" not in command[1:-1]:
        return None  # a program of the user's own: nothing more is known of it
    module = command[command.index("-m") + 1]
    looked = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({module.partition('.')[0]!r}))"
    fine, _ = run_program([command[0], "-c", looked], environment)
    return None if fine else f"{command[0]} has no module {module.partition('.')[0]}"
