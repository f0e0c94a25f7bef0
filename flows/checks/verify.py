"""All checks of `kernelmill verify`, and those of everything that a configuration names: data, models, services."""

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from flows.checks import machine, preflight, toolchain
from flows.checks.named_files import missing_files
from flows.checks.result import CheckResult, checked, failed, note, ok
from flows.checks.settings import check_settings
from flows.services.ray_cluster import check_address
from flows.settings.configuration import RunConfig
from flows.settings.plurals import counted
from tasks.rollout.engines.sglang.installation import (
    VARIABLE,
    cuda_home,
    find_installation,
    looked_in,
    server_command,
    server_environment,
)

_GET_SGLANG = (
    f"python3 -m venv .sglang && .sglang/bin/pip install 'sglang==0.5.13', or {VARIABLE}=FOLDER of an environment or "
    "of packages that has it, or name its Python in rollout.sglang.command (docs/sglang.md)"
)


def settings(config: RunConfig) -> CheckResult:
    """Check settings that are wrong only in combination."""
    return checked("settings", check_settings, config, config.run_id, "correct the setting that is named")


def files(config: RunConfig) -> CheckResult:
    """Check that every file and folder that the configuration names is there."""
    missing = missing_files(config)
    if missing:
        return failed("files", f"not there: {'; '.join(missing)}", "correct these settings, or put the files there")
    return ok("files", "all that the configuration names are there")


def problems(config: RunConfig) -> CheckResult:
    """Check that problems and SFT pairs can be read."""
    source = config.problems.source
    found = "generated" if source == "generated" else source
    if config.problems.path is not None:
        found += f" at {config.problems.path}"
    if config.problems.heldout_path is not None:
        found += f"; held out: {config.problems.heldout_source} at {config.problems.heldout_path}"
    if config.sft.data.path is not None and not config.sft.is_left_out:
        found += f"; SFT pairs at {config.sft.data.path}"
    fix = "docs/problems.md has the formats; --set problems.path=… or --set problems.source=generated"
    return checked("problems", preflight.check_problems, config, found, fix)


def checkpoint(config: RunConfig) -> CheckResult:
    """Check that a pretrained model is a folder with weights and a tokenizer."""
    name = config.model.pretrained
    if name is None:
        return ok("model", "a new one, trained from scratch")
    if (
        config.model.megatron is None
        and not Path(name).is_dir()
        and not (Path(name).is_absolute() or name.startswith("."))
    ):
        return note(
            "model",
            f"{name} is assumed to be a name on the Hugging Face hub or in its cache; not checked",
            "download it beforehand and name the folder: --set model.pretrained=/models/…",
        )
    fix = "name a Hugging Face folder with config.json, *.safetensors and a tokenizer"
    return checked("model", preflight.check_pretrained, config, str(name), fix)


def ray(config: RunConfig) -> CheckResult:
    """Check that the Ray cluster answers, if one is named."""
    found = (
        f"a local one of {config.ray.cpus or 'all'} CPUs is started with the run"
        if config.ray.address is None
        else f"{config.ray.address} answers"
    )
    fix = "`ray start --head` there, the same RAY_AUTH_TOKEN on both sides; or --set ray.address=null"
    return checked("Ray", lambda config: check_address(config.ray), config, found, fix)


def prefect(_: RunConfig) -> CheckResult:
    """Check that the configured Prefect server answers; if none is configured, the run starts one."""
    from prefect.settings import get_current_settings

    from flows.services.prefect_server import answers

    api_url = get_current_settings().api.url
    if api_url is None:
        return ok("Prefect server", "none is named: a run starts its own (SQLite, loopback)")
    if answers(api_url, preflight.HEALTH_TIMEOUT_S):
        return ok("Prefect server", f"{api_url} answers")
    return note(
        "Prefect server",
        f"nothing answers at {api_url}: a run starts its own",
        "`prefect server start`, or unset PREFECT_API_URL",
    )


def sglang(config: RunConfig) -> CheckResult:
    """Check that every named SGLang server is healthy, or that the command that starts one exists."""
    rollout = config.rollout
    if rollout.engine != "sglang":
        return ok("SGLang", "not used: rollout.engine is transformers")
    if rollout.sglang_urls:
        unhealthy = preflight.unhealthy_servers(rollout.sglang_urls)
        if unhealthy:
            fix = "start the servers, or correct rollout.sglang_urls (docs/sglang.md)"
            return failed("SGLang", "; ".join(unhealthy), fix)
        return ok("SGLang", f"{counted(len(rollout.sglang_urls), 'server')} healthy")
    if config.ray.address is not None:
        return note("SGLang", "servers are started on the cluster; its nodes were not checked")
    command = rollout.sglang.command
    if command is None and find_installation() is None:
        return failed("SGLang", f"not found in {looked_in()}", _GET_SGLANG)
    problem = _start_problem(server_command(rollout.sglang), server_environment(rollout.sglang))
    if problem is not None:
        return failed("SGLang", problem, _GET_SGLANG)
    found = f"started with the run: {counted(rollout.sglang.servers, 'server')}: {' '.join((command or ())[:1])}"
    missing = [name for name in ("nvcc", "ninja") if not _has_tool(name)]
    if missing:
        fix = "install the CUDA toolkit and ninja: SGLang compiles kernels at its first start"
        return note("SGLang", f"{found.rstrip(': ')}; not found: {', '.join(missing)}", fix)
    return ok("SGLang", found.rstrip(": "))


def _has_tool(name: str) -> bool:
    return shutil.which(name) is not None or (name == "nvcc" and cuda_home() is not None)


def _start_problem(command: Sequence[str], environment: dict[str, str]) -> str | None:
    """Return the reason why a server's command cannot start one, or None."""
    if shutil.which(command[0]) is None:
        return f"rollout.sglang.command: {command[0]}: no such program"
    if "-m" not in command[1:-1]:
        return None  # not a Python module: nothing more can be checked
    package = command[command.index("-m") + 1].partition(".")[0]
    code = f"import importlib.util, sys; sys.exit(not importlib.util.find_spec({package!r}))"
    found, _ = toolchain.run_program([command[0], "-c", code], environment)
    return None if found else f"{command[0]} has no module {package}"


CHECKS: tuple[Callable[[RunConfig], CheckResult], ...] = (
    machine.python,
    machine.packages,
    machine.processor,
    machine.gpu,
    machine.disk,
    toolchain.triton_interpreter,
    toolchain.triton_compiler,
    toolchain.nvcc,
    toolchain.sandbox,
    ray,
    prefect,
    sglang,
    settings,
    files,
    problems,
    checkpoint,
)


def run_checks(config: RunConfig) -> list[CheckResult]:
    """Run `CHECKS` in parallel (the slow ones start processes); return their results in order."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(lambda check: check(config), CHECKS))
