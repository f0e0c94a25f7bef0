"""Settings of PyTorch that a problem changes hold for it alone."""

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
    assert code.settings == [torch.float16, "high", True, False]
    with unchanged_settings():
        set_settings(code.settings)
        assert code.inputs()[0].dtype is torch.float16
        assert settings() == code.settings
    assert settings() == before
