"""The reference side of one problem on a GPU: inputs drawn there, the reference and its float64 oracle run there.

What decides shapes and the reduced leading size is found on the CPU as ever (kernels_eval.reference.reference); models move to the device
when first used. PyTorch's own TF32 and reduced-precision sums are off: they would move the reference, not the oracle.
"""

import copy
from typing import Any

import torch

from kernels_eval.gpu import cuda_driver
from kernels_eval.reference.inputs import SecretSeed
from kernels_eval.reference.reference import Reference


def set_precision() -> None:
    """Have this process's matrix products computed in the precision that they are written in."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


class DeviceReference(Reference):
    """One problem, executed on the device. Raises ReferenceFailedError wherever the problem's own code does."""

    def __init__(self, source: str, weight_seed: int) -> None:
        super().__init__(source, weight_seed)
        self._on_device: dict[bool, torch.nn.Module] = {}
        self._compiled: dict[bool, Any] = {}

    def state(self, perturbed: bool) -> dict[str, torch.Tensor]:
        """Return parameters and buffers by name, on the host."""
        model = super()._model(perturbed)
        return {**dict(model.named_parameters()), **dict(model.named_buffers())}

    def draw(self, size: int | None, trial: int, seed: SecretSeed, own: bool) -> list[Any]:
        """Draw the inputs of one trial on the device."""
        with torch.device(cuda_driver.DEVICE):
            return super().draw(size, trial, seed, own)

    def _placed(self, values: list[Any]) -> list[Any]:
        return [value.to(cuda_driver.DEVICE) if isinstance(value, torch.Tensor) else value for value in values]

    def _generator(self, seed: SecretSeed, trial: int) -> torch.Generator:
        return torch.Generator(cuda_driver.DEVICE).manual_seed(seed.number("values", trial))

    def forward(self, perturbed: bool, compiled: bool) -> Any:
        """Return what is timed: the model itself, or what torch.compile makes of it."""
        model = self._model(perturbed)
        if not compiled:
            return model
        if perturbed not in self._compiled:
            self._compiled[perturbed] = torch.compile(model)
        return self._compiled[perturbed]

    def _model(self, perturbed: bool) -> torch.nn.Module:
        if not hasattr(self, "_on_device"):  # while the base class looks at shapes, all is on the host
            return super()._model(perturbed)
        if perturbed not in self._on_device:
            self._on_device[perturbed] = copy.deepcopy(super()._model(perturbed)).to(cuda_driver.DEVICE)
        return self._on_device[perturbed]
