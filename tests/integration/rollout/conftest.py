"""A small policy that has learnt to answer, and a small problem set."""

import json
import random
from pathlib import Path

import pytest

from tasks.models.config import ModelConfig
from tasks.pipeline.references import CheckpointRef, ProblemSetRef
from tasks.pipeline.store import publish, published_digest
from tasks.problems.config import ProblemsConfig


def source_of(number: int) -> str:
    return (
        "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n"
        f"        return x * {number}.0\n\n\ndef get_inputs():\n    return [torch.randn(64, 32)]\n\n\ndef get_init_inputs():\n    return []\n"
    )


KERNEL = """import torch
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


@pytest.fixture(scope="session")
def problem_set(tmp_path_factory: pytest.TempPathFactory) -> ProblemSetRef:
    from tasks.problems.problem_set import build_problem_set

    folder = tmp_path_factory.mktemp("problems")
    rows = [
        {"problem_id": f"scale_{n}", "source": source_of(n), "level": 1, "split": "train" if n < 8 else "heldout"}
        for n in range(2, 12)
    ]
    file = folder / "problems.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")
    return build_problem_set(
        ProblemsConfig(source="jsonl", path=str(file), train=6, heldout=4, flag_trivial=False), folder / "set"
    )


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> CheckpointRef:
    """Trained for a few seconds on right and wrong kernels, so that all verdicts occur."""
    import torch

    from tasks.models.chat import encode_conversation
    from tasks.models.chat_templates import Message, Role
    from tasks.models.policy import new_policy, save_policy
    from tasks.models.tokenizer import train_tokenizer
    from tasks.rollout.prompts import answer_text

    texts = [text for number in range(2, 12) for text in (source_of(number), answer_text(KERNEL.format(number=number)))]
    tokenizer = train_tokenizer(texts * 3, 700, tmp_path_factory.mktemp("tokenizer"))
    model = new_policy(ModelConfig(vocabulary=700, max_positions=512), tokenizer, seed=1)
    generator = random.Random(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-3)
    for _ in range(60):
        batch = []
        for _ in range(16):
            number = generator.randrange(2, 12)
            kernel = KERNEL.format(number=generator.choice([number, number, 3]))
            kernel = kernel.replace("mask=at < n)\n", generator.choice(["mask=at < n)\n", "mask=at < n))\n"]), 1)
            messages = [
                Message(role=Role.USER, content=source_of(number)),
                Message(role=Role.ASSISTANT, content=answer_text(kernel), trained=True),
            ]
            batch.append(encode_conversation(tokenizer, messages))
        width = max(len(item.token_ids) for item in batch)
        ids = torch.tensor([item.token_ids + [0] * (width - len(item.token_ids)) for item in batch])
        labels = torch.tensor(
            [
                [token if kept else -100 for token, kept in zip(item.token_ids, item.loss_mask, strict=True)]
                + [-100] * (width - len(item.token_ids))
                for item in batch
            ]
        )
        loss = model(input_ids=ids, labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    folder = tmp_path_factory.mktemp("policy") / "policy"
    with publish(folder) as partial:
        save_policy(model, tokenizer, partial)
    return CheckpointRef(uri=str(folder), digest=published_digest(folder))


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "batch"
