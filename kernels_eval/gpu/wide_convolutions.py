"""Transposed convolutions of the float64 oracle on a GPU: as products of matrices, without cuDNN.

cuDNN has no fast transposed convolution in float64: of an image of 8 x 64 x 1024 x 1024 it takes more than a second,
with each of some eight input sets of a verdict. PyTorch's own way is a product of matrices for each sample, for which
data-centre GPUs have float64 units, and a sum of overlapping columns. Both compute the same sums of products in
float64, in another order: they differ by 1e-15 of a value's size, a thousand millionth of the smallest tolerance.
"""

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_TRANSPOSED = frozenset({torch.conv_transpose1d, torch.conv_transpose2d, torch.conv_transpose3d})


class WideConvolutions(TorchFunctionMode):
    """Computes transposed convolutions of float64 tensors without cuDNN, where the memory suffices, else as it is."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Call one function of PyTorch."""
        kwargs = kwargs or {}
        given = args[0] if args else kwargs.get("input")
        if func in _TRANSPOSED and isinstance(given, torch.Tensor) and given.dtype is torch.float64:
            try:
                with torch.backends.cudnn.flags(enabled=False):
                    return func(*args, **kwargs)
            except torch.cuda.OutOfMemoryError:  # the columns of a sample take a multiple of its output
                torch.cuda.empty_cache()
        return func(*args, **kwargs)
