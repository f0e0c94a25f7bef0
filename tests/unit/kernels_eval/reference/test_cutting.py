"""Problems too large to be interpreted are cut where their program allows."""

import pytest

from kernels_eval.reference.cutting import cut_problem, enlarged
from kernels_eval.reference.problem_code import ProblemCode
from kernels_eval.reference.reference import Reference

CONVOLUTION = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, in_channels, out_channels, kernel_size):
        super().__init__()
        self.conv = nn.Conv3d(in_channels, out_channels, kernel_size)

    def forward(self, x):
        return self.conv(x)

batch_size = 16
in_channels, out_channels, kernel_size = 3, 64, 3
depth, height, width = 64, 62, 65

def get_inputs():
    return [torch.randn(batch_size, in_channels, depth, height, width)]

def get_init_inputs():
    return [in_channels, out_channels, kernel_size]
"""
LAYER_NORM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.norm = nn.LayerNorm(shape)

    def forward(self, x):
        return self.norm(x)

rows = 64
features = 4096
columns = 4096

def get_inputs():
    return [torch.randn(rows, features, columns)]

def get_init_inputs():
    return [(features, columns)]
"""
OWN_GLOBAL = """
import torch
import torch.nn as nn

size = 8192

class Model(nn.Module):
    def forward(self, x):
        return x.view(size, size) @ x

def get_inputs():
    return [torch.randn(size, size)]

def get_init_inputs():
    return []
"""


def shapes(source: str) -> list[tuple[int, ...]]:
    return [tuple(value.shape) for value in ProblemCode(source).inputs()]


def test_inputs_are_cut_before_what_the_constructor_is_given_and_odd_sizes_stay_odd() -> None:
    cut = cut_problem(CONVOLUTION, 16)
    assert cut is not None
    ((batch, channels, depth, height, width),) = shapes(cut.source)
    assert batch == 4
    assert channels == 3
    assert depth < 64
    assert width % 2 == 1 < width < 65
    assert height < 62
    assert cut.sizes["batch_size"] == (4, 16)
    assert "out_channels" not in cut.sizes
    assert "kernel_size" not in cut.sizes
    assert ProblemCode(cut.source).arguments == [3, 64, 3]


def test_constants_of_inputs_and_constructor_change_together() -> None:
    cut = cut_problem(LAYER_NORM, 64)
    assert cut is not None
    (shape,) = shapes(cut.source)
    assert ProblemCode(cut.source).arguments == [shape[1:]]
    assert shape[1] == shape[2] < 4096


def test_a_size_that_the_model_itself_names_is_not_cut() -> None:
    assert cut_problem(OWN_GLOBAL, 8192) is None


@pytest.mark.parametrize("seed", [1, 2])
def test_a_large_problem_has_a_cut_one_that_costs_little(seed: int) -> None:
    whole = Reference(CONVOLUTION, seed, may_be_cut=True)
    assert whole.cut is not None
    assert whole.cut.cut is None
    assert whole.cut.work.flops < whole.work.flops / 10
    assert whole.cut.work.bytes < 24e6
    again = whole.with_weights(seed + 1)
    assert again.cut is not None
    assert again.cut.weight_seed == seed + 1


PRODUCT = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def forward(self, a, b):
        return a @ b

M, K, N = 256, 32768, 512

def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]

def get_init_inputs():
    return []
"""


def test_an_input_that_no_leading_size_reduces_counts_as_it_is() -> None:
    whole = Reference(PRODUCT, 1, may_be_cut=True)
    assert whole.can_be_reduced
    assert whole.work.bytes > 32768 * 512 * 4
    assert whole.cut is not None
    assert whole.cut.work.bytes < 24e6


LITERALS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 5, padding=2, groups=channels)

    def forward(self, x, at):
        size_224 = x.shape[-1]
        return self.conv(x)[..., :size_224] * 128 + at.sum()

batch, channels = 12, 64

def get_inputs():
    return [torch.rand(batch, channels, 224, 224) * 64, torch.randint(0, 1000, (batch,))]

def get_init_inputs():
    return [channels]
"""


def test_a_size_that_the_inputs_state_as_a_literal_is_cut_and_other_numbers_stay() -> None:
    cut = cut_problem(LITERALS, 12)
    assert cut is not None
    assert {name: own for name, (_, own) in cut.sizes.items()} == {"batch": 12, "size_224_": 224}
    problem = ProblemCode(cut.source)
    values, positions = problem.inputs()
    batch, now = cut.sizes["batch"][0], cut.sizes["size_224_"][0]
    assert values.shape == (batch, 64, now, now)
    assert values.max() > 32, "a factor is no size"
    assert positions.max() < 1000
    assert "randint(0, 1000" in cut.source, "as it was"
    assert Reference(LITERALS, 1, may_be_cut=True).cut is not None


def test_what_a_mask_is_made_of_is_not_cut_alone() -> None:
    masked = LITERALS.replace("* 64, torch", "* (torch.arange(224) < 112), torch")
    cut = cut_problem(masked, 12)
    assert cut is not None
    assert cut.sizes.keys() == {"batch", "channels"}, "the drawn input keeps the mask's size"
    assert "torch.arange(224) < 112" in cut.source


def test_a_small_problem_is_left_as_it_is() -> None:
    small = CONVOLUTION.replace("64, 62, 65", "8, 8, 9")
    assert Reference(small, 1, may_be_cut=True).cut is None
    assert Reference(CONVOLUTION, 1).cut is None


def test_a_constant_of_the_name_of_a_parameter_is_cut_where_a_call_is_still_large() -> None:
    fixed = CONVOLUTION.replace("depth, height, width)]", "2 * 17, 8 * 25, 8 * 25)]")
    cut = cut_problem(fixed, 16)
    assert cut is not None
    assert cut.sizes["out_channels"][0] < 64
    small = cut_problem(CONVOLUTION, 16)
    assert small is not None
    assert "out_channels" not in small.sizes


def test_of_two_equal_sizes_the_one_that_may_change_is_cut() -> None:
    tied = CONVOLUTION.replace("depth, height, width = 64, 62, 65", "depth, height, width = 64, 98, 98").replace(
        "return self.conv(x)", "return self.conv(x) * torch.ones(96)"
    )
    cut = cut_problem(tied, 16)
    assert cut is not None
    assert cut.sizes["height"][0] < 98
    assert "width" not in cut.sizes


def test_a_cut_problem_is_enlarged_with_equal_sizes() -> None:
    source = (
        "import torch\nN = 4096\nclass Model(torch.nn.Module):\n    def forward(self, a, b):\n        return a @ b\n"
        "def get_inputs():\n    return [torch.randn(N, N), torch.randn(N, N)]\ndef get_init_inputs():\n    return []\n"
    )
    cut = cut_problem(source, None)
    assert cut is not None
    assert cut.sizes == {"N": (512, 4096)}
    larger = enlarged(source, cut.sizes, 5.0)
    assert larger is not None
    assert larger.sizes == {"N": (1024, 4096)}  # 2.1 GFLOP; twice as large 17, of 10 that five seconds allow
    assert "N = 1024" in larger.source
    assert enlarged(source, cut.sizes, 0.5) is None
    assert enlarged(source.replace("4096", "1024"), {"N": (512, 1024)}, 5.0) is None  # the problem itself
