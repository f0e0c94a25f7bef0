"""activation chosen by a constexpr string from a family of device functions, sizes by a heuristic

expect: correct
"""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Model(nn.Module):
    def forward(self, x):
        return F.mish(x)


def get_inputs():
    return [torch.randn(250, 120)]


def get_init_inputs():
    return []


# --- candidate ---
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sigmoid(input):
    return 1 / (1 + tl.exp(-input))


@triton.jit
def tanh(input):
    return 2 * sigmoid(2 * input) - 1


@triton.jit
def relu(input):
    return tl.maximum(0, input)


@triton.jit
def mish(input):
    return input * tanh(tl.log(1 + tl.exp(input)))


@triton.jit
def hardswish(input):
    return input * tl.minimum(tl.maximum(input + 3, 0), 6) / 6


@triton.jit
def apply_act_func(input, act_func: tl.constexpr):
    if act_func == "sigmoid":
        output = sigmoid(input)
    elif act_func == "tanh":
        output = tanh(input)
    elif act_func == "relu":
        output = relu(input)
    elif act_func == "mish":
        output = mish(input)
    elif act_func == "hardswish":
        output = hardswish(input)
    return output


@triton.jit
def act_func_forward_kernel(input_pointer, output_pointer, size, act_func: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offset = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offset < size
    input = tl.load(input_pointer + offset, mask=mask).to(tl.float32)
    tl.store(output_pointer + offset, apply_act_func(input, act_func), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        flattened = x.flatten()
        size = len(flattened)
        output = torch.empty_like(flattened)
        grid = lambda META: (triton.cdiv(size, META["BLOCK_SIZE"]),)
        act_func_forward_kernel[grid](flattened, output, size, act_func="mish", BLOCK_SIZE=512)
        return output.view_as(x)
