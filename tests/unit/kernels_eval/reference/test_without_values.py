"""Forms without values: inputs as a problem draws them, and operators that compute nothing."""

import torch

from kernels_eval.reference.without_values import WithoutValues, inputs_without_values

PROBLEM = """
import torch
class Model(torch.nn.Module):
    def forward(self, x, index, n):
        return x
def get_inputs():
    return [torch.randn(1 << 20, 1 << 10).t(), torch.randint(0, 5, (7,), device="cuda"), 3]
def get_init_inputs():
    return []
"""


def test_inputs_have_forms_and_take_no_time() -> None:
    x, index, number = inputs_without_values(PROBLEM)  # 4 GB, of which no page is touched
    assert (x.shape, x.stride(), x.dtype, x.device.type) == ((1 << 10, 1 << 20), (1, 1 << 10), torch.float32, "cpu")
    assert index.tolist() == [0] * 7
    assert number == 3


def test_operators_return_forms() -> None:
    huge = torch.empty(1 << 14, 1 << 14)
    with WithoutValues(), torch.no_grad():
        product = torch.relu(huge @ huge.t())  # 9 TFLOP: minutes, if they were computed
        values, places = torch.max(product, dim=1)
        linear = torch.nn.Linear(4, 3)(torch.ones(2, 4))
        kept = torch.full((2, 2), 3.0).view(4).contiguous()
        places.add_(1)
    assert (product.shape, values.shape, places.dtype, linear.shape) == (huge.shape, (1 << 14,), torch.int64, (2, 3))
    assert kept.tolist() == [3.0] * 4
    assert places[:5].tolist() == [0] * 5
