"""Settings of PyTorch that a candidate changes are noticed, also where PyTorch then refuses to tell them."""

from typing import Any

import pytest
import torch

from kernels_eval.reference.settings import unchanged_settings
from kernels_eval.tracing.process import global_state


@pytest.mark.parametrize(
    ("library", "precision", "name"),
    [
        (torch.backends.cuda.matmul, "tf32", "torch.backends.cuda.matmul.allow_tf32"),
        (torch.backends.cudnn.conv, "ieee", "torch.backends.cudnn.allow_tf32"),  # pyright: ignore[reportAttributeAccessIssue]
    ],
)
def test_a_precision_of_one_library_is_noticed(library: Any, precision: str, name: str) -> None:
    before = global_state()
    with unchanged_settings():
        library.fp32_precision = precision
        after = global_state()
    assert after[name] != before[name]
    assert global_state() == before
