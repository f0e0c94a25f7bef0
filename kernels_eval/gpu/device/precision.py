"""Precision of PyTorch's own products, in the judge's worker and in a candidate's process alike.

TF32 and reduced-precision sums are off: they would change the reference, not the oracle. Where a candidate may use
PyTorch's operators (policy `mixed`), its convolution would otherwise be less precise than the reference's.
"""

import torch


def set_precision() -> None:
    """Have this process compute matrix products and convolutions in the precision of their operands."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
