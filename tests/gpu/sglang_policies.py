"""Small policies for the run on a GPU: one that has learnt to write kernels of different quality, and what updates make of it.

The problems multiply by a number. The policy learns from kernels that are right, wrong and broken, so that rollouts
show every verdict and feedback has something to say.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kernels_eval.problem import Problem
from tasks.models.chat import encode_conversation
from tasks.models.config import ModelConfig
from tasks.models.messages import Message, Role
from tasks.models.policy import new_policy, save_policy
from tasks.models.tokenizer import train_tokenizer
from tasks.problems.row import ProblemRow, Split
from tasks.references import CheckpointRef
from tasks.rollout.prompts import answer_text

NUMBERS = range(2, 14)
SHAPE = ModelConfig(
    vocabulary=1500, layers=4, hidden=256, intermediate=768, heads=4, key_value_heads=2, head_dim=64, max_positions=4096
)
LARGE = {
    "vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
    "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}  # fmt: skip
"""The shape of Qwen3-0.6B."""

_SOURCE = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * {number}.0


def get_inputs():
    return [torch.randn(64, 32)]


def get_init_inputs():
    return []
"""
_KERNEL = """import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * {number}.0, mask=at < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scale[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
        return y
"""


def problem_rows() -> list[ProblemRow]:
    """Return the problems, as the driver takes them."""
    return [
        ProblemRow(
            problem=Problem(problem_id=f"scale_{number}", source=_SOURCE.format(number=number), level=1),
            split=Split.TRAIN,
        )
        for number in NUMBERS
    ]


class Trainer:
    """A policy that is trained a little, saved, and trained on."""

    def __init__(self, folder: Path, device: str) -> None:
        self._folder, self._device = folder, device
        texts = [text for n in NUMBERS for text in (_SOURCE.format(number=n), answer_text(_KERNEL.format(number=n)))]
        # Whole lines become tokens: their beginnings are given as well, so that the vocabulary has something to hold.
        lines = sorted({line for text in texts for line in text.splitlines(keepends=True)})
        prefixes = [line[:end] for line in lines for end in range(3, len(line), 2)]
        self.tokenizer: Any = train_tokenizer(texts * 3 + prefixes, SHAPE.vocabulary, folder / "tokenizer")
        self.model: Any = new_policy(SHAPE, self.tokenizer, seed=1).to(device)
        self._random = random.Random(0)
        self._optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-3)

    def train(self, steps: int, learning_rate: float) -> float:
        """Take steps of SFT; return the last loss."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        loss = torch.zeros(())
        for _ in range(steps):
            ids, labels = self._batch(16)
            loss = self.model(input_ids=ids, labels=labels).loss
            self._optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self._optimizer.step()
        return float(loss.detach())

    def save(self, name: str) -> CheckpointRef:
        """Write a checkpoint as an update does: the optimizer's state lies beside the weights."""
        from safetensors.torch import save_file

        path = self._folder / name
        save_policy(self.model, self.tokenizer, path)
        moments = {
            f"exp_avg/{key}": self._optimizer.state[parameter]["exp_avg"].cpu()
            for key, parameter in self.model.named_parameters()
        }
        save_file(moments, path / "optimizer.safetensors")
        return CheckpointRef(uri=str(path), digest=f"policy-{name}")

    def save_random(self, name: str, seed: int) -> CheckpointRef:
        """Write a policy of the same shape that has learnt nothing."""
        path = self._folder / name
        save_policy(new_policy(SHAPE, self.tokenizer, seed), self.tokenizer, path)
        return CheckpointRef(uri=str(path), digest=f"policy-{name}")

    def save_large(self, name: str) -> CheckpointRef:
        """Write a policy of Qwen3-0.6B's shape that has learnt nothing, in bfloat16."""
        from transformers import Qwen3Config, Qwen3ForCausalLM

        config = Qwen3Config(
            **LARGE,
            rope_parameters={"rope_type": "default", "rope_theta": 1e6},
            eos_token_id=self.tokenizer.eos_token_id,
            pad_token_id=self.tokenizer.pad_token_id,
            bos_token_id=None,
        )
        config.dtype = torch.bfloat16
        with torch.device(self._device):
            model = Qwen3ForCausalLM(config)
        model = model.to(torch.bfloat16)
        path = self._folder / name
        save_policy(model.cpu(), self.tokenizer, path)
        return CheckpointRef(uri=str(path), digest=f"policy-{name}")

    def _batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        encoded = [encode_conversation(self.tokenizer, self._conversation()) for _ in range(size)]
        width = max(len(item.token_ids) for item in encoded)
        ids = [item.token_ids + [0] * (width - len(item.token_ids)) for item in encoded]
        labels = [
            [token if kept else -100 for token, kept in zip(item.token_ids, item.loss_mask, strict=True)]
            + [-100] * (width - len(item.token_ids))
            for item in encoded
        ]
        return torch.tensor(ids, device=self._device), torch.tensor(labels, device=self._device)

    def _conversation(self) -> Sequence[Message]:
        number = self._random.choice(NUMBERS)
        kernel = _KERNEL.format(number=self._random.choice([number, number, 3]))
        kernel = kernel.replace("mask=at < n)\n", self._random.choice(["mask=at < n)\n", "mask=at < n))\n"]), 1)
        return [
            Message(role=Role.USER, content=_SOURCE.format(number=number)),
            Message(role=Role.ASSISTANT, content=answer_text(kernel), trained=True),
        ]
