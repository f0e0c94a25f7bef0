"""Precision of PyTorch's products: full, whatever the process was set to before."""

from collections.abc import Iterator

import pytest
import torch

from kernels_eval.gpu.device.precision import set_precision

SWITCHES = (
    (torch.backends.cuda.matmul, "allow_tf32"),
    (torch.backends.cudnn, "allow_tf32"),
    (torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    (torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
)


@pytest.fixture
def loose() -> Iterator[None]:
    """A process in which everything is rounded; afterwards it is as it was."""
    before = [getattr(owner, name) for owner, name in SWITCHES]
    for owner, name in SWITCHES:
        setattr(owner, name, True)
    yield
    for (owner, name), value in zip(SWITCHES, before, strict=True):
        setattr(owner, name, value)


@pytest.mark.usefixtures("loose")
def test_no_product_is_rounded_on_the_way() -> None:
    assert [bool(getattr(owner, name)) for owner, name in SWITCHES] == [True] * 4
    set_precision()
    assert [bool(getattr(owner, name)) for owner, name in SWITCHES] == [False] * 4
