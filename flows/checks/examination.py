"""All checks, side by side: the slow ones are processes of their own."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from flows.checks import inputs, machine, services, toolchain
from flows.checks.finding import Finding
from flows.settings.configuration import RunConfig

Check = Callable[[RunConfig], Finding]
CHECKS: tuple[Check, ...] = (
    machine.python,
    machine.packages,
    machine.processor,
    machine.gpu,
    machine.disk,
    toolchain.triton_interpreter,
    toolchain.triton_compiler,
    toolchain.nvcc,
    toolchain.sandbox,
    services.ray,
    services.prefect,
    services.sglang,
    inputs.settings,
    inputs.problems,
    inputs.checkpoint,
)


def examine_machine(config: RunConfig) -> list[Finding]:
    """Return one finding a check, in the order of `CHECKS`."""
    with ThreadPoolExecutor(max_workers=4) as pool:
        return list(pool.map(lambda check: check(config), CHECKS))
