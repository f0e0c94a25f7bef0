"""HIP C++: modules that call `torch.utils.cpp_extension.load_inline`, as under a ROCm build of PyTorch. Compiled alone.

The judge runs and times kernels on NVIDIA GPUs, on which HIP's machine code does not run. hipcc compiles the device
code for targets such as `hip:gfx942` on any machine, which gives errors and resources; a verdict goes no further.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernels_eval.backends import Backend
from kernels_eval.backends.cuda import GLOBAL_FUNCTION, recorded_extensions
from kernels_eval.compile.hipcc import compile_device_code, hipcc
from kernels_eval.sandbox.unprivileged import may_read


class HipBackend(Backend):
    """Kernels marked `__global__`, in `cuda_sources` or `cpp_sources`."""

    builds = True
    compiler = "hipcc"

    def unavailable(self, device: str, targets: Sequence[str]) -> str | None:
        """Refuse to judge on an NVIDIA GPU; ask for a target and for hipcc."""
        if device == "cuda":
            return "HIP kernels do not run on this machine's NVIDIA GPU; `judge.device=cpu` has them compiled alone"
        if not any(target.startswith("hip:") for target in targets):
            return f"judge.targets: expected one such as `hip:gfx942`, found {', '.join(targets) or 'none'}"
        program = hipcc()
        if program is None:
            return "hipcc is not on this machine; it comes with ROCm (on Debian and Ubuntu: apt-get install hipcc)"
        if not may_read(program):
            return f"hipcc is {program}, where compilers of kernels may read nothing; install it below /usr or /opt"
        return None

    def own_kernels(self, source: str) -> frozenset[str]:
        """Return every function that is marked as a kernel."""
        return frozenset(GLOBAL_FUNCTION.findall(source))

    def build(self, request: dict[str, Any]) -> dict[str, Any]:
        """Compile the device code of every extension that the source asks for."""
        resources: list[dict[str, Any]] = []
        for extension in recorded_extensions(request):
            place = Path(request["folder"]) / extension.digest
            place.mkdir(parents=True, exist_ok=True)
            for target in request["targets"]:
                if target.startswith("hip:"):
                    resources += compile_device_code(extension, place, target)
        return {"resources": resources, "libraries": {}}


BACKEND = HipBackend()
