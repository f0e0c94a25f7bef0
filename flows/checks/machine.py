"""Checks of Python, packages, processor, memory, GPU and disk of this machine."""

import os
import platform
import shutil
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError
from pathlib import Path

from flows.capacity.memory import GIB, shape_of
from flows.capacity.planner import disk_bytes, gpus_of
from flows.checks.packages import OURS, declared_packages, wrong_packages
from flows.checks.preflight import FREE_BYTES, check_disk, check_gpus
from flows.checks.result import CheckResult, checked, failed, note, ok
from flows.services.gpus import gpus_here
from flows.settings.configuration import RunConfig
from flows.settings.plurals import counted
from kernels_eval.errors import InputError

LEAST_PYTHON, BELOW_PYTHON = (3, 11), (3, 14)
LEAST_MEMORY_BYTES = 4 * GIB


def python(_: RunConfig) -> CheckResult:
    """Check that the pinned packages support this Python version."""
    found = f"{platform.python_version()} ({sys.executable})"
    if LEAST_PYTHON <= sys.version_info[:2] < BELOW_PYTHON:
        return ok("Python", found)
    return failed("Python", found, "use Python 3.11, 3.12 or 3.13: make setup PYTHON=/path/to/python3.12")


def packages(_: RunConfig) -> CheckResult:
    """Check that every dependency is installed in a version of the declared range."""
    try:
        needed = declared_packages()
    except PackageNotFoundError:
        return note("packages", f"{OURS} itself is not installed; run from the checkout", "make setup")
    wrong = wrong_packages(needed)
    if wrong:
        return failed("packages", "; ".join(wrong), "make setup (installs deployments/constraints.txt into .venv)")
    return ok("packages", f"{len(needed)} dependencies in their declared ranges")


def cores_here() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_here() -> int:
    """Return the bytes of memory of this machine, or its container."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _memory_limit()
    return min(memory, limit) if limit else memory


def processor(config: RunConfig) -> CheckResult:
    """Check cores and memory."""
    cores, memory = cores_here(), memory_here()
    found = f"{cores} cores, {memory / GIB:.1f} GiB of memory"
    if memory < LEAST_MEMORY_BYTES:
        return failed("processor", found, f"a run needs at least {LEAST_MEMORY_BYTES // GIB} GiB of memory")
    wanted = config.update.threads_per_rank * config.update.ranks
    if config.ray.address is None and wanted > cores:
        return note(
            "processor",
            f"{found}; the update has {counted(config.update.ranks, 'rank')} × "
            f"{counted(config.update.threads_per_rank, 'thread')}",
            f"--set update.threads_per_rank={max(1, cores // config.update.ranks)}",
        )
    return ok("processor", found)


def gpu(config: RunConfig) -> CheckResult:
    """Check that this machine has the GPUs that the configuration needs."""
    here = "; ".join(gpus_here()) or "none"
    if config.ray.address is not None:
        return note("GPU", f"on this machine: {here}; the cluster at {config.ray.address} has its own")
    if gpus_of(config) == 0 and config.judge.device != "cuda":
        return ok("GPU", f"{here}; this configuration needs none")
    fix = "`kernelmill plan` shows what fits; GPUs of this machine must be listed by `nvidia-smi` (driver, container)"
    return checked("GPU", check_gpus, config, here, fix)


def disk(config: RunConfig) -> CheckResult:
    """Check that the folder of runs is writable, on a disk with enough space."""
    folder = Path(config.runs_dir)
    try:
        check_disk(folder)
    except InputError as error:
        return failed("disk", str(error), "`kernelmill data gc`, or --set runs_dir=FOLDER")
    free = shutil.disk_usage(folder).free
    needed = float(FREE_BYTES)
    with suppress(InputError):  # the model's sizes are not known
        needed = max(needed, disk_bytes(config, shape_of(config.model)))
    found = f"{free / GIB:.1f} GiB are free at {folder}"
    if free < needed:
        return note(
            "disk",
            f"{found}; the checkpoints of {counted(config.iterations, 'iteration')} take {needed / GIB:.0f} GiB",
            "--set runs_dir=FOLDER, or a larger update.checkpoint_interval",
        )
    return ok("disk", found)


def _memory_limit() -> int | None:
    """Return the container's memory limit in bytes, or None."""
    for name in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            text = Path(name).read_text(encoding="utf-8").strip()
        except OSError:
            continue
        if text.isdigit() and int(text) < 2**60:
            return int(text)
    return None
