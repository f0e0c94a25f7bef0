"""SGLang on this machine: its place, and the flags and environment that suit it and the GPU.

Runs where a server runs. SGLang has dependencies of its own: it lies in an environment of its own (a folder with
`bin/python`), or in a folder of packages that only the server's process sees (a folder with `sglang/`).
"""

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from tasks.models.config import expert_count
from tasks.pipeline.json_file import read_json_object
from tasks.rollout.config import SglangConfig
from tasks.training.config import ATTENTION_PROJECTIONS, MLP_PROJECTIONS

VARIABLE = "KERNELMILL_SGLANG"
"""Environment variable with SGLang's folder."""
PLACES = (".sglang", "/opt/sglang")
"""Folders that are looked at if the variable is not set."""
MODULE = "sglang.launch_server"
_QUERY_TIMEOUT_S = 20
_PIECEWISE = ((0, 5, 11), (0, 5, 17))
"""First and last version that is known to have `--disable-piecewise-cuda-graph`."""


@dataclass(frozen=True)
class Installation:
    """One SGLang."""

    python: str
    """Interpreter of a server."""
    site: Path | None = None
    """Folder of packages that goes first on the server's PYTHONPATH. None: the interpreter has SGLang itself."""
    version: tuple[int, ...] = ()
    """From the metadata of the package, e.g. (0, 5, 13). Empty: not known."""

    @property
    def command(self) -> tuple[str, ...]:
        """Command of a server."""
        return (self.python, "-m", MODULE)


def find_installation() -> Installation | None:
    """Return SGLang in the folder that `KERNELMILL_SGLANG` names, else in `PLACES`, else of this Python; or None."""
    named = os.environ.get(VARIABLE)
    for place in (named,) if named else PLACES:
        found = _in_folder(Path(place).absolute())
        if found is not None:
            return found
    if not named and find_spec("sglang") is not None:
        return Installation(sys.executable)
    return None


def looked_in() -> str:
    """Return in words where `find_installation` looks."""
    named = os.environ.get(VARIABLE)
    return f"{VARIABLE}={named}" if named else f"{VARIABLE}, {', '.join(PLACES)} or this Python"


def _in_folder(folder: Path) -> Installation | None:
    if (folder / "sglang").is_dir():
        return Installation(sys.executable, folder, _version([folder]))
    python = folder / "bin/python"
    sites = list(folder.glob("lib/python3*/site-packages"))
    if python.is_file() and any((site / "sglang").is_dir() for site in sites):
        return Installation(str(python), None, _version(sites))
    return None


def _version(sites: list[Path]) -> tuple[int, ...]:
    names = [found.name for site in sites for found in site.glob("sglang-*.dist-info")]
    match = re.match(r"sglang-(\d+)\.(\d+)\.(\d+)", names[0]) if names else None
    return tuple(int(part) for part in match.groups()) if match else ()


def server_command(config: SglangConfig, model: Path | None = None) -> tuple[str, ...]:
    """Return the command of a server without model and address: the configured one, or that of what is found here.

    `model`: folder of what it will hold, from which it follows where it takes adapters.
    """
    found = find_installation() if config.command is None else None
    command = config.command or (found.command if found else ("python3", "-m", MODULE))
    if MODULE not in command:
        return (*command, *config.flags)
    given = {flag.partition("=")[0] for flag in config.flags}
    defaults = default_flags(config, found, compute_capability(), cuda_home())
    if config.adapter_rank:
        defaults += adapter_flags(config.adapter_rank, model)
    return (*command, *(part for name, *rest in defaults if name not in given for part in (name, *rest)), *config.flags)


def default_flags(
    config: SglangConfig, found: Installation | None, capability: float | None, cuda: str | None
) -> list[tuple[str, ...]]:
    """Return the flags that `rollout.sglang.flags` overrides, each with its value.

    `capability`: the GPU's compute capability; None: no NVIDIA GPU. `cuda`: folder of the CUDA toolkit, if any.
    """
    flags: list[tuple[str, ...]] = [
        ("--grammar-backend", "none"),  # nothing is generated under a grammar
        ("--sampling-backend", "pytorch"),  # training samples with T = 1 and without top-p: nothing to be fast at
        ("--skip-server-warmup",),  # the canary is the first request
        ("--cuda-graph-max-bs", str(min(config.concurrency, 256))),
    ]
    if capability is not None:
        flags.append(("--dtype", "bfloat16" if capability >= 8 else "half"))
    if found is None or found.site is not None or cuda is None:
        # FlashInfer compiles its kernels with nvcc; folders of packages leave FlashAttention out, which is large.
        flags.append(("--attention-backend", "triton"))
    if found is not None and _PIECEWISE[0] <= found.version <= _PIECEWISE[1]:
        flags.append(("--disable-piecewise-cuda-graph",))  # captured for long prompts; takes a minute
    if config.memory_share is not None:
        flags.append(("--mem-fraction-static", f"{config.memory_share:g}"))
    return flags


def adapter_flags(rank: int, model: Path | None) -> list[tuple[str, ...]]:
    """Return the flags of a server that takes adapters of at most this rank on every module that can have one."""
    modules = ATTENTION_PROJECTIONS
    if model is None or not expert_count(read_json_object(model / "config.json")):
        modules += MLP_PROJECTIONS
    return [("--enable-lora",), ("--max-lora-rank", str(rank)), ("--lora-target-modules", *modules)]


def server_environment(config: SglangConfig) -> dict[str, str]:
    """Return the environment of a server: defaults, this process's variables over them, and the configured ones."""
    defaults = {
        "HF_HUB_OFFLINE": "1",  # the policy is a folder
        "TRANSFORMERS_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "GLOO_SOCKET_IFNAME": "lo",  # a server's processes are on one machine, which may have no name in the network
        "NCCL_SOCKET_IFNAME": "lo",
        "TORCHDYNAMO_DISABLE": "1",  # one helper would be compiled at the start: 27 s
    }
    cuda = cuda_home()
    if cuda is not None:
        defaults["CUDA_HOME"] = cuda
    environment = defaults | os.environ
    found = find_installation() if config.command is None else None
    if found is not None and found.site is not None:
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(found.site), os.environ.get("PYTHONPATH")]))
    return environment | config.environment


def cuda_home() -> str | None:
    """Return the folder of the CUDA toolkit, found by its compiler, or None."""
    named = os.environ.get("CUDA_HOME")
    compiler = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if named or compiler is None:
        return named
    return str(Path(compiler).resolve().parent.parent)


def compute_capability() -> float | None:
    """Return the least compute capability of this machine's NVIDIA GPUs, e.g. 9.0; None if there are none."""
    if shutil.which("nvidia-smi") is None:
        return None
    query = ["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=False)
        return min(float(line) for line in done.stdout.split())
    except (subprocess.TimeoutExpired, ValueError):
        return None
