"""Checks of Triton, nvcc and the judge's sandbox, each in a separate process: they run in parallel."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from flows.checks.result import CheckResult, failed, note, ok
from flows.settings.configuration import RunConfig
from kernels_eval.config import AUTO

PROGRAM_TIMEOUT_S = 120.0
"""Time of a program on a machine with nothing else to do; longer by the load on each core, at most tenfold."""
_MOST_PATIENCE = 10.0
_BUSY = "not done within"
SANDBOX_FEATURES = ("rlimits", "no_new_privs", "seccomp", "landlock", "netns")
GPU_SANDBOX_FEATURES = (*SANDBOX_FEATURES, "unprivileged")
_MISSING = {
    "seccomp": "system calls are not filtered",
    "landlock": "candidates can open the files of the judge's user",
    "netns": "candidates can reach the network",
    "no_new_privs": "candidates can gain privileges",
    "unprivileged": "candidates run as the judge's user",
}
_SANDBOX = """
import json, sys
from kernels_eval.gpu.device.detection import gpu_name
on_gpu = sys.argv[1] != "cpu" and gpu_name() is not None
if on_gpu:
    from kernels_eval.gpu.candidate.limits import confine_fork_server
else:
    from kernels_eval.sandbox.limits import confine_fork_server
print(json.dumps([on_gpu, confine_fork_server(on_gpu)]))
"""
_ROOT = str(Path(__file__).parents[2])


def run_program(command: Sequence[str], environment: dict[str, str] | None = None) -> tuple[bool, str]:
    """Run a program; return True and its output, or False and its last line or the error."""
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})}
    # Makes a checkout importable that is not installed.
    variables["PYTHONPATH"] = os.pathsep.join(path for path in (_ROOT, variables.get("PYTHONPATH")) if path)
    limit_s = PROGRAM_TIMEOUT_S * _patience()
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=limit_s,
            check=False,
            env=variables,
            stdin=subprocess.DEVNULL,
        )
    except subprocess.TimeoutExpired:
        return False, f"{_BUSY} {limit_s:.0f} s, at a load of {os.getloadavg()[0]:.0f} on {os.cpu_count()} cores"
    except OSError as error:
        return False, str(error)
    if done.returncode == 0:
        return True, done.stdout.strip()
    lines = (done.stderr or done.stdout).strip().splitlines()
    return False, lines[-1] if lines else f"exit code {done.returncode}"


def _patience() -> float:
    """Return how many times longer a program may take than on a quiet machine."""
    return min(max(os.getloadavg()[0] / (os.cpu_count() or 1), 1.0), _MOST_PATIENCE)


def _failed(name: str, output: str, fix: str) -> CheckResult:
    """Return a failure with its remedy: a program that was too slow says nothing of what is installed."""
    return failed(name, output, "check again when this machine has less to do" if output.startswith(_BUSY) else fix)


def triton_interpreter(_: RunConfig) -> CheckResult:
    """Check that a kernel runs in Triton's interpreter, without a GPU."""
    command = [sys.executable, "-m", "flows.checks.triton_kernel", "interpret"]
    fine, output = run_program(command, {"TRITON_INTERPRET": "1"})
    if fine:
        return ok("Triton interpreter", output)
    return _failed("Triton interpreter", output, "make setup; Triton must be the version that torch was built for")


def triton_compiler(config: RunConfig) -> CheckResult:
    """Check that a kernel compiles to machine code for the first of the configured targets."""
    if config.judge.compile == "never" or not config.judge.targets:
        return ok("Triton compiler", "not needed by judge.compile")
    command = [sys.executable, "-m", "flows.checks.triton_kernel", "compile", config.judge.targets[0]]
    fine, output = run_program(command)
    if fine:
        return ok("Triton compiler", output)
    return _failed("Triton compiler", output, "make setup; or name a target that this Triton knows in judge.targets")


def nvcc(config: RunConfig) -> CheckResult:
    """Check the CUDA compiler; it is needed if kernels are CUDA C++."""
    home = os.environ.get("CUDA_HOME") or "/usr/local/cuda"
    program = shutil.which("nvcc") or shutil.which("nvcc", path=f"{home}/bin")
    needed = config.judge.backend in ("cuda", AUTO)
    problem = failed if needed else note
    if program is None:
        found = (
            f"not found; judge.backend is {config.judge.backend}" if needed else "not found; needed for CUDA C++ only"
        )
        return problem("nvcc", found, "install the CUDA toolkit and put nvcc on PATH, or set CUDA_HOME")
    fine, output = run_program([program, "--version"])
    if not fine:
        return problem("nvcc", f"{program}: {output}", "install the CUDA toolkit again")
    release = re.search(r"release ([\d.]+)", output)
    return ok("nvcc", f"{program}, release {release[1] if release else 'unknown'}")


def sandbox(config: RunConfig) -> CheckResult:
    """Check which features of the judge's sandbox this machine supports."""
    fine, output = run_program([sys.executable, "-c", _SANDBOX, config.judge.device])
    if not fine:
        return _failed("judge sandbox", output, "the judge runs on Linux; see docs/judge.md")
    on_gpu, found = json.loads(output.splitlines()[-1])
    wanted = GPU_SANDBOX_FEATURES if on_gpu else SANDBOX_FEATURES
    missing = [feature for feature in wanted if feature not in found]
    if not missing:
        return ok("judge sandbox", ", ".join(wanted))
    reasons = "; ".join(f"no {feature}: {_MISSING.get(feature, 'not in force')}" for feature in missing)
    fix = "allow unprivileged user namespaces and seccomp (in containers: --security-opt seccomp=unconfined)"
    if missing == ["unprivileged"]:
        fix = "run the judge as root, with the interpreter and TMPDIR in folders that other users may enter"
    if config.judge.require_sandbox:
        return failed("judge sandbox", f"{reasons}; judge.require_sandbox is set", fix)
    return note("judge sandbox", reasons, fix)
