"""Small policies for the run on a GPU: one that has learnt to write kernels of different quality, and what updates make of it.

The problems multiply by a number. The policy learns from kernels that are right, wrong and broken, so that rollouts
show every verdict and feedback has something to say; then from its own trajectories, as the update stage does in one step.
"""

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from kernels_eval.problem import Problem
from kernels_eval.verdict import Status, Verdict
from tasks.models.chat import encode_conversation
from tasks.models.chat_templates import Message, Role
from tasks.models.config import ModelConfig
from tasks.models.policy import new_policy, save_policy
from tasks.models.tokenizer import train_tokenizer
from tasks.pipeline.references import CheckpointRef
from tasks.problems.row import ProblemRow, Split
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import HistoryTurn, answer_text, prompt_messages
from tasks.trajectories.returns import turn_returns
from tasks.trajectories.schema import Trajectory
from tasks.update.advantages import leave_one_out_advantages

NUMBERS = range(2, 14)
EPISODE = EpisodeConfig(prompt="source", feedback="brief", max_turns=3, success_reward=10, max_zero_turns=3)
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
    """Return the problems, as the episode loop takes them."""
    return [
        ProblemRow(
            problem=Problem(problem_id=f"scale_{number}", source=_SOURCE.format(number=number), level=1),
            split=Split.TRAIN,
        )
        for number in NUMBERS
    ]


def judged_example() -> tuple[Problem, str, str]:
    """Return a problem, a kernel that is right, and one that is wrong."""
    row = problem_rows()[1]
    return row.problem, _KERNEL.format(number=3), _KERNEL.format(number=4)


class TextJudge:
    """Stands in where the real judge does not start: looks at the text alone."""

    async def evaluate_async(self, problem: Problem, kernel_source: str) -> Verdict:
        """Judge one kernel."""
        try:
            compile(kernel_source, "kernel", "exec")
        except SyntaxError as error:
            return Verdict(status=Status.COMPILE_ERROR, error_category="syntax_error", error_message=str(error))
        found, wanted = (re.search(r"\* (\d+)\.0", text) for text in (kernel_source, problem.source))
        if found is None or wanted is None or found[1] != wanted[1]:
            return Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values")
        return Verdict(status=Status.CORRECT, compiled=True, correct=True)


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

    def learn(self, trajectories: Sequence[Trajectory], gamma: float, learning_rate: float) -> float:
        """Take one policy-gradient step on sampled tokens, each turn by its own return; return the loss."""
        turns, returns, groups = [], [], []
        for trajectory in trajectories:
            values = turn_returns([turn.reward for turn in trajectory.turns], gamma)
            for turn, value in zip(trajectory.turns, values, strict=True):
                if value is not None:
                    turns.append(turn)
                    returns.append(value)
                    groups.append((trajectory.group_id, turn.turn_index))
        advantages = leave_one_out_advantages(torch.tensor(returns, dtype=torch.float64), groups).float()
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.zero_grad()
        total, tokens = 0.0, sum(len(turn.response_token_ids) for turn in turns)
        for turn, advantage in zip(turns, advantages.tolist(), strict=True):
            ids = torch.tensor([[*turn.prompt_token_ids, *turn.response_token_ids]], device=self._device)
            count = len(turn.response_token_ids)
            logprobs = self.model(input_ids=ids).logits[0, -count - 1 : -1].log_softmax(-1)
            loss = -advantage * logprobs.gather(1, ids[0, -count:, None]).sum() / tokens
            loss.backward()
            total += float(loss.detach())
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self._optimizer.step()
        return total

    def save(self, name: str) -> CheckpointRef:
        """Write a checkpoint as an update does: the optimizer's state lies beside the weights."""
        from safetensors.torch import save_file

        path = self._folder / name
        save_policy(self.model, self.tokenizer, path)
        moments = {
            f"exp_avg/{key}": self._optimizer.state[parameter]["exp_avg"].cpu()
            for key, parameter in self.model.named_parameters()
        }
        (path / "optimizer").mkdir(exist_ok=True)
        save_file(moments, path / "optimizer" / "state.safetensors")
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
        """A kernel, right or not, after none to two others with what the judge said of them."""
        number = self._random.choice(NUMBERS)
        history = [self._judged(number) for _ in range(self._random.randrange(3))]
        asked = prompt_messages(_SOURCE.format(number=number), history, EPISODE)
        answer = self._judged(number).response_text
        return [*asked, Message(role=Role.ASSISTANT, content=answer, trained=True)]

    def _judged(self, number: int) -> HistoryTurn:
        """A kernel of some quality for the problem of this number."""
        found = self._random.choice([number, number, 3])
        source, is_broken = _KERNEL.format(number=found), self._random.random() < 0.3
        if is_broken:
            source = source.replace("mask=at < n)\n", "mask=at < n))\n", 1)
            verdict = Verdict(status=Status.COMPILE_ERROR, error_category="syntax_error")
        elif found != number:
            verdict = Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values")
        else:
            verdict = Verdict(status=Status.CORRECT, compiled=True, correct=True)
        return HistoryTurn(response_text=answer_text(source), kernel_source=source, verdict=verdict, reward=0.0)
