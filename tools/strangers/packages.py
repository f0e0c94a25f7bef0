"""Packages whose operators are judged, and the text that stands for host code which only asks the machine.

A stand-in replaces a definition of that name: a registry of devices, a decorator that moves tensors, a cache of tuning.
Kernels are never replaced. Tuned configurations are those of the package, the first two of each operator.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_IDENTITY = "def {name}(*args, **kwargs):\n    return args[0] if args and callable(args[0]) else (lambda made: made)"
_CONTEXT = "import contextlib\n\ndef {name}(*args):\n    return contextlib.nullcontext()"
_FALSE = "def {name}(*args):\n    return False"
_LIBDEVICE = "from triton.language.extra import libdevice as {name}"


_FIND = "from triton.language.extra import libdevice\n\ndef libdevice_find(name):\n    return getattr(libdevice, name)"
_OF_LIBDEVICE = "from triton.language.extra.libdevice import {name}"


def _texts(form: str, *names: str) -> dict[str, str]:
    return {name: form.format(name=name) for name in names}


def _gems(folder: Path) -> dict[str, str]:
    """Return the stand-ins of FlagGems, with the configurations of its own file."""
    path = folder / "flag_gems/runtime/backend/_nvidia/tune_configs.yaml"
    entries: dict[str, list[dict[str, Any]]] = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = {name: [_config(entry) for entry in configs[:2]] for name, configs in entries.items()}
    return {"runtime": _RUNTIME.format(configs=found)}


def _config(entry: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """Return the meta-parameters and warps of one entry of a file of configurations; of a family, its first member."""
    if not entry.get("gen"):
        return entry["META"], entry.get("num_warps", 4)
    meta = entry["param_map"]["META"]
    if isinstance(meta, str):
        return entry[meta][0], 4
    return {name: entry[values][0] if isinstance(values, str) else values for name, values in meta.items()}, 4


_RUNTIME = """
class runtime:
    CONFIGS = {configs}
    torch_device_fn = torch.cuda

    class device:
        name, vendor_name = "cuda", "nvidia"

    def get_tuned_config(name):
        return [triton.Config(dict(meta), num_warps=warps) for meta, warps in runtime.CONFIGS.get(name, [])]

    def ops_get_configs(name, *args, **kwargs):
        return runtime.get_tuned_config(name)

    def get_expand_config(*args, **kwargs):
        return -1

    def get_heuristic_config(name):
        return HEURISTICS_CONFIGS[name]
"""
_GEMS = {
    "libentry": _IDENTITY.format(name="libentry"),
    "use_tl_extra": (
        "from triton.language.extra import libdevice\n\n"
        "def use_tl_extra(function):\n    return getattr(libdevice, function.__name__, function)"
    ),
    "pointwise_dynamic": _IDENTITY.format(name="pointwise_dynamic"),
    "libtuner": "def libtuner(configs, key, **rest):\n    return triton.autotune(configs=configs, key=key)",
    "torch_device_fn": "torch_device_fn = torch.cuda",
    "tl_extra_shim": _LIBDEVICE.format(name="tl_extra_shim"),
    "device": "class _Device(str):\n    name, vendor_name = 'cuda', 'nvidia'\n\ndevice = _Device('cuda')",
    "get_heuristics_for_num_warps": (
        "def get_heuristics_for_num_warps(tile_size):\n"
        "    return 4 if tile_size < 2048 else 8 if tile_size < 4096 else 16"
    ),
}
_FLA = {
    "dispatch": _IDENTITY.format(name="dispatch"),
    **_texts(_IDENTITY, "input_guard", "autocast_custom_fwd", "autocast_custom_bwd", "contiguous", "checkpoint"),
    "autotune_cache_kwargs": "autotune_cache_kwargs = {}",
    "fla_cache_autotune": "fla_cache_autotune = triton.autotune",
    **{name: f"{name} = False" for name in ("IS_AMD", "IS_INTEL", "IS_NPU", "IS_NVIDIA_HOPPER", "IS_TMA_SUPPORTED")},
    **{name: f"{name} = False" for name in ("IS_NVIDIA_BLACKWELL", "USE_CUDA_GRAPH", "IS_GATHER_SUPPORTED")},
    "IS_NVIDIA": "IS_NVIDIA = True",
    "check_shared_mem": "def check_shared_mem(*args):\n    return True",
    "get_multiprocessor_count": "def get_multiprocessor_count(*args):\n    return 132",
}
_UNSLOTH = {
    **_texts(_FALSE, "is_hip", "is_cdna", "is_rdna"),
    "get_device_type": "def get_device_type():\n    return 'cuda'",
    "DEVICE_TYPE": "DEVICE_TYPE = 'cuda'",
    "DEVICE_COUNT": "DEVICE_COUNT = 1",
    "torch_gpu_device": _CONTEXT.format(name="torch_gpu_device"),
    "triton_cast": "triton_cast = tl.cast",
    "triton_tanh": "from triton.language.extra.libdevice import tanh as triton_tanh",
}
_LIGER = {
    **_texts(_FALSE, "is_hip", "is_npu_available"),
    **_texts(_OF_LIBDEVICE, "tanh", "rsqrt"),
    "infer_device": "def infer_device():\n    return 'cuda'",
    "infer_device_arch": "def infer_device_arch():\n    return 'sm90'",
    "set_large_grf_mode": "def set_large_grf_mode(*args):\n    return None",
    "compare_version": (
        "def compare_version(package, compare, target):\n"
        "    return compare((3, 7, 1), tuple(int(part) for part in target.split('.')))"
    ),
    "device_context": "import contextlib\n\ndef device_context(*args):\n    return contextlib.nullcontext()",
}


@dataclass(frozen=True)
class Package:
    """A package of operators. `name`: as it is installed, `folder`: of its modules."""

    name: str
    folder: str
    stand_ins: Mapping[str, str] = field(default_factory=dict[str, str])
    made: Callable[[Path], Mapping[str, str]] | None = None
    """Returns more of them, from the unpacked package."""
    first: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])
    """Module and name of definitions that a stand-in needs, by a word of the modules that need it."""


PACKAGES = {
    package.folder: package
    for package in (
        Package(
            "flag-gems",
            "flag_gems",
            _GEMS,
            _gems,
            {
                "get_heuristic_config": (
                    "flag_gems.runtime.backend._nvidia.heuristics_config_utils",
                    "HEURISTICS_CONFIGS",
                )
            },
        ),
        Package("fla-core", "fla", _FLA),
        Package("unsloth", "unsloth", _UNSLOTH),
        Package("liger-kernel", "liger_kernel", _LIGER),
        Package("conch-triton-kernels", "conch"),
        Package("lmdeploy", "lmdeploy"),
        Package("lightllm", "lightllm"),
        Package("dlblas", "dlblas"),
        Package("xformers", "xformers", {"libdevice_find": _FIND}),
        Package("bitsandbytes", "bitsandbytes"),
        Package("torchao", "torchao"),
    )
}
