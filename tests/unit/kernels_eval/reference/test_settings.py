"""Settings of PyTorch that a problem changes hold for it alone."""

import pytest
import torch

from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.reference.settings import set_settings, settings, unchanged_settings

SOURCE = """
import torch
torch.set_default_dtype(torch.float16)
torch.set_float32_matmul_precision("high")
torch.use_deterministic_algorithms(True)
torch.set_grad_enabled(False)
Model = torch.nn.Identity
def get_inputs():
    return [torch.rand(4)]
def get_init_inputs():
    return []
"""


def test_they_are_kept_with_the_problem_and_put_back() -> None:
    before = settings()
    with unchanged_settings():
        code = ProblemCode(SOURCE)
    assert settings() == before
    assert code.settings[:4] == [torch.float16, "high", True, False]
    with unchanged_settings():
        set_settings(code.settings)
        assert code.inputs()[0].dtype is torch.float16
        assert settings() == code.settings
    assert settings() == before


@pytest.mark.parametrize(
    ("library", "precision"),
    [
        ("", "tf32"),
        (".cuda.matmul", "tf32"),
        (".cudnn.conv", "ieee"),
        (".cudnn.rnn", "ieee"),
        (".mkldnn.matmul", "bf16"),
    ],
)
def test_a_precision_of_one_library_is_put_back_too(library: str, precision: str) -> None:
    def found() -> str:
        return eval(f"torch.backends{library}.fp32_precision")

    before, found_before = settings(), found()
    assert found_before != precision
    with unchanged_settings():
        code = ProblemCode(
            SOURCE.replace('"high"', '"highest"') + f'torch.backends{library}.fp32_precision = "{precision}"'
        )
    assert (settings(), found()) == (before, found_before)
    with unchanged_settings():
        set_settings(code.settings)
        assert (settings(), found()) == (code.settings, precision)
    assert (settings(), found()) == (before, found_before)
    assert torch.get_float32_matmul_precision() == "highest"  # PyTorch tells it again
