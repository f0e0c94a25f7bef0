"""All checks of `kernelmill verify`, and those of everything that a configuration names: data, models, services."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from flows.checks import machine, preflight, toolchain
from flows.checks.named_files import missing_files
from flows.checks.nodes import check_cluster
from flows.checks.result import CheckResult, Outcome, checked, failed, note, ok
from flows.checks.settings import check_settings
from flows.services.ray_cluster import check_address
from flows.settings.configuration import RunConfig
from kernels_eval.errors import InfrastructureError, InputError
from tasks.rollout.engines.health import HEALTH_TIMEOUT_S
from tasks.rollout.engines.kind import kind_of


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
    return checked("problems", partial(preflight.check_problems, splits=True), config, found, fix)


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
    """Check that the Ray cluster answers, if one is named, and that its nodes have what stages need."""
    found = (
        f"a local one of {config.ray.cpus or 'all'} CPUs is started with the run"
        if config.ray.address is None
        else f"{config.ray.address} answers, and its nodes have what stages need"
    )
    fix = "`ray start --head` there, the same RAY_AUTH_TOKEN on both sides; or --set ray.address=null"
    return checked("Ray", _cluster, config, found, fix)


def _cluster(config: RunConfig) -> None:
    if config.ray.address is not None:
        check_address(config.ray)  # `check_cluster` waits for one that does not answer
        try:
            check_cluster(config)
        except InfrastructureError as error:
            raise InputError(str(error)) from error


def prefect(_: RunConfig) -> CheckResult:
    """Check that the configured Prefect server answers; if none is configured, the run starts one."""
    from prefect.settings import get_current_settings

    from flows.services.prefect_server import answers

    api_url = get_current_settings().api.url
    if api_url is None:
        return ok("Prefect server", "none is named: a run starts its own (SQLite, loopback)")
    if answers(api_url, HEALTH_TIMEOUT_S):
        return ok("Prefect server", f"{api_url} answers")
    return note(
        "Prefect server",
        f"nothing answers at {api_url}: a run starts its own",
        "`prefect server start`, or unset PREFECT_API_URL",
    )


def engine(config: RunConfig) -> CheckResult:
    """Check that the engine has what it needs, as it says itself."""
    kind = kind_of(config.rollout)
    found = kind.look(config.rollout, is_here=config.ray.address is None)
    return CheckResult(kind.label, Outcome(found.outcome), found.found, found.fix)


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
    engine,
    settings,
    files,
    problems,
    checkpoint,
)


def run_checks(config: RunConfig) -> list[CheckResult]:
    """Run `CHECKS` in parallel (the slow ones start processes); return their results in order."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(lambda check: check(config), CHECKS))
