"""Triton, nvcc, and what the judge's sandbox can do here. Each in a process of its own, so that they run side by side."""

import os
import re
import shutil
import sys

from flows.checks.finding import Finding, failed, note, ok
from flows.checks.program import run_program
from flows.settings.configuration import RunConfig

WANTED_ABILITIES = ("rlimits", "no_new_privs", "seccomp", "landlock", "netns")
_REASONS = {
    "seccomp": "system calls are not filtered",
    "landlock": "candidates can open the judge's user's files",
    "netns": "candidates can reach the network",
    "no_new_privs": "candidates can gain privileges",
}
_SANDBOX = "import json; from kernels_eval.sandbox.limits import confine_fork_server; print(json.dumps(confine_fork_server(False)))"


def triton_interpreter(_: RunConfig) -> Finding:
    """Kernels can be run without a GPU."""
    fine, said = run_program([sys.executable, "-m", "flows.checks.probe", "interpret"])
    if fine:
        return ok("Triton interpreter", said)
    return failed("Triton interpreter", said, "make setup; Triton must be the version that torch was built for")


def triton_compiler(config: RunConfig) -> Finding:
    """Kernels compile to machine code for the first of the configured targets."""
    if config.judge.compile == "never" or not config.judge.targets:
        return ok("Triton compiler", "not asked for by judge.compile")
    target = config.judge.targets[0]
    fine, said = run_program([sys.executable, "-m", "flows.checks.probe", "compile", target])
    if fine:
        return ok("Triton compiler", said)
    return failed("Triton compiler", said, "make setup; or name a target that this Triton knows in judge.targets")


def nvcc(config: RunConfig) -> Finding:
    """The CUDA compiler, where kernels are CUDA C++."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    program = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    needed = config.judge.backend == "cuda"
    if program is None:
        fix = "install the CUDA toolkit and put nvcc on PATH, or set CUDA_HOME"
        return (
            failed("nvcc", "not found; judge.backend is cuda", fix)
            if needed
            else note("nvcc", "not found; needed for CUDA C++ only", fix)
        )
    fine, said = run_program([program, "--version"])
    if not fine:
        return (failed if needed else note)("nvcc", f"{program}: {said}", "install the CUDA toolkit again")
    release = re.search(r"release ([\d.]+)", said)
    return ok("nvcc", f"{program}, release {release[1] if release else 'unknown'}")


def sandbox(config: RunConfig) -> Finding:
    """What keeps a candidate in on this machine."""
    fine, said = run_program([sys.executable, "-c", _SANDBOX])
    if not fine:
        return failed("judge sandbox", said, "the judge runs on Linux; see docs/judge.md")
    missing = [ability for ability in WANTED_ABILITIES if f'"{ability}"' not in said]
    if not missing:
        return ok("judge sandbox", ", ".join(WANTED_ABILITIES))
    reasons = "; ".join(f"no {ability}: {_REASONS.get(ability, 'not in force')}" for ability in missing)
    fix = "run where unprivileged user namespaces and seccomp are allowed (in containers: --security-opt seccomp=unconfined)"
    if config.judge.require_sandbox:
        return failed("judge sandbox", f"{reasons}; judge.require_sandbox is set", fix)
    return note("judge sandbox", reasons, fix)
