"""Workloads of the rollout benchmark: models, a tokenizer, prompts, and a policy that is trained to answer."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tasks.models.chat import encode_conversation, encode_prompt
from tasks.models.chat_templates import Message, Role
from tasks.models.config import ModelConfig
from tasks.models.policy import new_policy
from tasks.models.tokenizer import train_tokenizer
from tasks.problems.config import ProblemsConfig
from tasks.rollout.config import EpisodeConfig, SamplingConfig
from tasks.rollout.prompts import answer_text, prompt_messages
from tasks.sft.config import SftDataConfig
from tasks.sft.drafts import generate_drafts

PROBLEMS = ProblemsConfig(train=64, heldout=8)
EPISODE = EpisodeConfig(prompt="source", feedback="brief", max_turns=3)
MODEL = ModelConfig(vocabulary=2048, layers=2, hidden=128, intermediate=384, heads=4, key_value_heads=2, head_dim=32)
"""The model of deployments/configs/local.yaml."""
LARGER = ModelConfig(vocabulary=2048, layers=6, hidden=256, intermediate=768, heads=4, key_value_heads=2, head_dim=64)
"""5.2 million parameters."""


@dataclass(frozen=True)
class Workload:
    """Model and prompts of a measurement."""

    name: str
    model: Any
    tokenizer: Any
    prompts: Sequence[tuple[int, ...]]
    samples: int
    max_new_tokens: int
    batch_size: int

    @property
    def endless(self) -> bool:
        """True if no token ends an answer: every sequence has the full length."""
        return self.name != "trained"

    @property
    def sampling(self) -> SamplingConfig:
        return SamplingConfig(max_new_tokens=self.max_new_tokens)

    @property
    def repeated(self) -> list[tuple[int, ...]]:
        return [prompt for prompt in self.prompts for _ in range(self.samples)]


def make_workloads(folder: Path, sft_steps: int) -> list[Workload]:
    """Return the workloads, after training the tokenizer and the policy."""
    drafts = generate_drafts(SftDataConfig(compositions=200, styles_per_composition=2, repair_fraction=0), PROBLEMS, 0)
    pairs = [(draft.problem.source, answer_text(draft.kernel)) for draft in drafts]
    tokenizer = train_tokenizer((text for pair in pairs for text in pair), MODEL.vocabulary, folder / "tokenizer")
    trained = new_policy(MODEL, tokenizer, seed=0)
    if sft_steps:
        fine_tune(trained, tokenizer, pairs, sft_steps)
    asked = [tuple(encode_prompt(tokenizer, prompt_messages(source, [], EPISODE))) for source, _ in pairs[:128:2]]
    instructed = [
        tuple(encode_prompt(tokenizer, prompt_messages(source, [], EpisodeConfig()))) for source, _ in pairs[:16:2]
    ]
    random_weights = new_policy(LARGER, tokenizer, seed=0).eval()
    return [
        Workload("full", random_weights, tokenizer, asked[:2], samples=8, max_new_tokens=128, batch_size=16),
        Workload("instruct", random_weights, tokenizer, instructed, samples=8, max_new_tokens=128, batch_size=64),
        Workload("trained", trained.eval(), tokenizer, asked, samples=8, max_new_tokens=120, batch_size=256),
    ]


def fine_tune(model: Any, tokenizer: Any, pairs: Sequence[tuple[str, str]], steps: int) -> None:
    """Fine-tune until answers end with an end-of-turn token."""
    encoded = [
        encode_conversation(
            tokenizer,
            [Message(role=Role.USER, content=source), Message(role=Role.ASSISTANT, content=answer, trained=True)],
        )
        for source, answer in pairs
    ]
    generator = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3, betas=(0.9, 0.95), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=steps + 1)
    for _ in range(steps):
        batch = generator.sample(encoded, 32)
        width = max(len(item.token_ids) for item in batch)
        ids, labels = torch.zeros((32, width), dtype=torch.long), torch.full((32, width), -100)
        for row, item in enumerate(batch):
            tokens, mask = torch.tensor(item.token_ids), torch.tensor(item.loss_mask)
            ids[row, : len(tokens)] = tokens
            labels[row, : len(tokens)] = torch.where(mask, tokens, -100)
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
