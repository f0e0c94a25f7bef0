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

_OF_TRITON = {
    "triton": "import triton",
    "tl": "import triton.language as tl",
    "tldevice": _LIBDEVICE.format(name="tldevice"),
    "init_logger": "init_logger = logging.getLogger",
}
_VLLM = {
    **_OF_TRITON,
    **_texts(_FALSE, "use_tensor_descriptor", "_prefer_narrow_kv_tile", "is_deep_gemm_e8m0_used"),
    "current_platform": """
import collections

Capability = collections.namedtuple("Capability", "major minor")

class current_platform:
    is_cuda = is_cuda_alike = has_device_capability = staticmethod(lambda *args: True)
    is_rocm = is_xpu = is_cpu = is_fp8_fnuz = is_arch_support_pdl = staticmethod(lambda *args: False)
    get_device_capability = staticmethod(lambda *args: Capability(9, 0))
    fp8_dtype = staticmethod(lambda: torch.float8_e4m3fn)
""",
    "envs": "class envs:\n    VLLM_BATCH_INVARIANT = False",
    "HAS_TRITON": "HAS_TRITON = True",
    "is_hip_": "is_hip_ = False",
    "is_quantized_kv_cache": _FALSE.format(name="is_quantized_kv_cache"),
    "_is_supported_kv_cache_dtype": "def _is_supported_kv_cache_dtype(*args):\n    return True",
    "async_tensor_h2d": "async_tensor_h2d = None",
    "gpu_sync_allowed": _CONTEXT.format(name="gpu_sync_allowed"),
    "num_compute_units": "def num_compute_units(*args):\n    return 132",
    "get_max_shared_memory_bytes": "def get_max_shared_memory_bytes(*args):\n    return 232448",
    "try_get_optimal_ssm_config": "def try_get_optimal_ssm_config(*args):\n    return 16, 4",
    "selective_state_update_cpu": "selective_state_update_cpu = None",
    "set_triton_allocator": "set_triton_allocator = None",
}
_SGLANG = {
    **_OF_TRITON,
    **_texts(
        _FALSE, "is_hip", "is_musa", "is_npu", "is_xpu", "is_cpu", "is_sm121", "is_hip_runtime", "is_sail_runtime"
    ),
    **_texts(_FALSE, "is_gfx95_supported", "is_gfx1250_supported", "cpu_has_amx_support", "is_musa_runtime"),
    **_texts(_FALSE, "is_arch_support_pdl", "is_batch_invariant_mode_enabled", "get_w8a8_block_int8_configs"),
    **_texts(
        _IDENTITY, "register_custom_op", "debug_kernel_api", "register_fake_if_exists", "select_impl", "input_guard"
    ),
    **_texts(_IDENTITY, "lazy_fallback"),
    "check_cuda_graph_backend": _FALSE.format(name="check_cuda_graph_backend"),
    "Phase": "class Phase:\n    PREFILL = None",
    "Backend": "class Backend:\n    TC_PIECEWISE = None",
    "row_scale_bf16": "row_scale_bf16 = None",
    "is_cuda": "def is_cuda(*args):\n    return True",
    "check_shared_mem": "def check_shared_mem(*args):\n    return True",
    "get_device_core_count": "def get_device_core_count(*args):\n    return 132",
    "get_device_name": "def get_device_name(*args):\n    return 'NVIDIA H100'",
}
_OTHERS = {
    "cut_cross_entropy": {
        "early_config_prune": "early_config_prune = None",
        "estimate_matmul_time": "estimate_matmul_time = None",
    },
    "deepspeed": {
        "get_accelerator": (
            "class get_accelerator:\n    def on_accelerator(self, tensor):\n        return tensor.is_cuda"
        )
    },
    "flashinfer": {"check_device": "def check_device(*args, **kwargs):\n    return None"},
    "tritonllm": {
        "target_info": (
            "class target_info:\n    is_hip = staticmethod(lambda: False)\n    num_sms = staticmethod(lambda: 132)"
        )
    },
    "xtuner": {
        "get_device_name": "def get_device_name():\n    return 'cuda'",
        "get_torch_device": "def get_torch_device():\n    return torch.cuda",
    },
}
_PLAIN = (
    "mlstm_kernels", "cut_cross_entropy", "sageattention", "transformer_engine", "triton_transformer", "torchtitan",
    "ring_attention_pytorch", "native_sparse_attention_pytorch", "xtuner", "nemo", "torchrec",
    "rotary_embedding_torch", "flashinfer", "deepspeed",
)  # fmt: skip
"""Packages whose host code asks the machine for little or nothing."""


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
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    """Names of its own modules, by the first part under which it imports them."""


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
        Package("vllm", "vllm", _VLLM),
        Package("sglang", "sglang", _SGLANG),
        Package(
            "tritonllm",
            "tritonllm",
            {**_OF_TRITON, **_OTHERS["tritonllm"]},
            aliases={"triton_kernels": "tritonllm.triton_kernels"},
        ),
        *(Package(name.replace("_", "-"), name, _OF_TRITON | _OTHERS.get(name, {})) for name in _PLAIN),
    )
}
