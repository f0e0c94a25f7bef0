"""Runs one small problem and kernel in the warm template, so that what torch and triton import lazily is there before any fork.

Without it each candidate's process would import torch._dynamo (1.4 s) at its first operator under a dispatch mode.
"""

import torch

from kernels_eval.accounting import LEDGER
from kernels_eval.candidate import load_source
from kernels_eval.example import KERNEL
from kernels_eval.inputs import SecretSeed
from kernels_eval.policy import StrictPolicy
from kernels_eval.reference import Reference

PROBLEM = """
import torch
import torch.nn as nn
import torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(16, 16)
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return F.softmax(F.gelu(self.norm(self.linear(x))) + x.mean(dim=1, keepdim=True), dim=1)

def get_inputs():
    return [torch.randn(128, 16)]

def get_init_inputs():
    return []
"""


def rehearse() -> None:
    """Do once what workers and candidates will do, and leave nothing behind but warm imports and caches."""
    reference = Reference(PROBLEM, weight_seed=1)
    inputs = reference.draw(32, 1, SecretSeed(b"rehearsal"), own=False)
    reference.truth(inputs, perturbed=True)
    model = load_source(KERNEL).ModelNew()
    with torch.no_grad(), StrictPolicy(enforce=True):
        model(inputs[0])
    LEDGER.reset()
