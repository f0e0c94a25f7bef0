"""The canary: does a server compute what the checkpoint says?

Each server scores a few fixed prompts and continues them by some sampled tokens, through its own prefill and decoding. The
checkpoint, loaded with transformers, gives the log-probabilities of the same tokens. Two things are refused:

- `mean |Δ|` above the threshold: other weights, another model, a broken kernel. (bfloat16 against float32: about 0.04.)
- weights from before: one update moves log-probabilities by far less than bfloat16 rounds, so that stale weights pass the
  threshold. But they differ from the new ones in a known direction d = new − old: the server's answer is projected on
  it. Near 1, it moved with the update; near 0, it stayed. Where d is lost in the rounding, this decides nothing, and the
  label that each answer carries (`weight_version`) is what is left.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NEW_TOKENS = 16
"""Tokens sampled after each prompt."""
PROMPT_TOKENS = 256
"""Prompts are cut to so many tokens."""
_SURE = 3.0
"""Standard errors below one half at which the projection convicts."""

_TEXTS = (
    "import torch\nimport torch.nn as nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n",
    "class Model(nn.Module):\n    def __init__(self, size):\n        super().__init__()\n        self.norm = nn.LayerNorm(size)\n\n"
    "    def forward(self, x):\n        return torch.sigmoid(self.norm(x)) * x\n",
    "@triton.jit\ndef kernel(x, y, n, BLOCK: tl.constexpr):\n    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
    "    tl.store(y + at, tl.exp(tl.load(x + at, mask=at < n)), mask=at < n)\n",
    "Write a kernel that adds two matrices of 1024 by 1024 numbers, and then takes the maximum of each row.",
)


@dataclass(frozen=True, slots=True)
class Answer:
    """A prompt of p tokens as a server scored it, and the n tokens that it sampled after it."""

    token_ids: tuple[int, ...]
    """Length p + n."""
    prompt_tokens: int
    logprobs: tuple[float, ...]
    """Length p + n − 1: of every token but the first."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One server against the checkpoint."""

    tokens: int
    mean_difference: float
    max_difference: float
    moved: float | None
    """Projection on what the update changed: 1 where the server has it, 0 where not; None where nothing is known."""
    moved_error: float | None
    """Standard error of `moved`."""

    @property
    def is_stale(self) -> bool:
        """True where the server answers from the weights before."""
        return self.moved is not None and self.moved_error is not None and self.moved + _SURE * self.moved_error < 0.5

    def refusal(self, threshold: float) -> str | None:
        """Return why these are not the checkpoint's weights; None where they may be."""
        found = (
            f"over {self.tokens} tokens the log-probabilities differ from the checkpoint's by {self.mean_difference:.4g} "
            f"(mean) and {self.max_difference:.4g} (max)"
        )
        if not self.mean_difference <= threshold:
            return f"{found}, expected a mean of at most {threshold:g} (rollout.sglang.canary_threshold)"
        if self.is_stale:
            return f"it still answers from the weights before the update: it moved {self.moved:.3f} of the way; {found}"
        return None


def canary_prompts(tokenizer: Any, count: int, context_tokens: int) -> list[tuple[int, ...]]:
    """Return `count` fixed prompts, written as the policy's turns are; they and their continuations fit the context."""
    from tasks.models.chat import encode_prompt
    from tasks.models.messages import Message, Role

    room = max(2, min(PROMPT_TOKENS, context_tokens - NEW_TOKENS))
    prompts: list[tuple[int, ...]] = []
    for number in range(count):
        text = _TEXTS[number % len(_TEXTS)]
        if number >= len(_TEXTS):
            text += f"# {number}\n"
        # The end is kept: there the template asks for the answer.
        prompts.append(tuple(encode_prompt(tokenizer, [Message(role=Role.USER, content=text)])[-room:]))
    return prompts


def reference_logprobs(folder: Path, dtype: str, sequences: Sequence[tuple[int, ...]]) -> list[tuple[float, ...]]:
    """Return what the checkpoint gives each token but the first of each sequence, computed with transformers."""
    import torch

    from tasks.models.policy import load_policy

    model: Any = load_policy(folder, dtype).eval()
    if torch.cuda.is_available():
        model = model.to("cuda")
    scored: list[tuple[float, ...]] = []
    with torch.inference_mode():
        for sequence in sequences:
            ids = torch.tensor([sequence], device=model.device)
            logprobs = model(input_ids=ids).logits[0, :-1].float().log_softmax(dim=-1)
            scored.append(tuple(logprobs.gather(1, ids[0, 1:].unsqueeze(1))[:, 0].tolist()))
    return scored


def compare(
    answers: Sequence[Answer],
    expected: Sequence[Sequence[float]],
    expected_before: Sequence[Sequence[float]] | None = None,
) -> Reading:
    """Compare a server's answers with the checkpoint's log-probabilities of the same tokens.

    `expected_before`: those of the prompts alone under the weights before, if there were any: one per answer, p − 1 each.
    """
    found = np.concatenate([answer.logprobs for answer in answers])
    differences = np.abs(found - np.concatenate(list(expected)))
    moved = error = None
    if expected_before is not None:
        # Only the prompts: what is sampled after them is another text under other weights.
        prompts = [slice(0, answer.prompt_tokens - 1) for answer in answers]
        new = np.concatenate([np.asarray(row)[part] for row, part in zip(expected, prompts, strict=True)])
        old = np.concatenate([np.asarray(row) for row in expected_before])
        here = np.concatenate([np.asarray(a.logprobs)[part] for a, part in zip(answers, prompts, strict=True)])
        moved, error = _projection(here - old, new - old)
    return Reading(len(differences), float(differences.mean()), float(differences.max()), moved, error)


def _projection(change: np.ndarray, direction: np.ndarray) -> tuple[float | None, float | None]:
    """Return the coefficient of `change` on `direction` by least squares, and its standard error."""
    length = float(direction @ direction)
    if length == 0 or len(direction) < 2:
        return None, None
    coefficient = float(change @ direction) / length
    rest = change - coefficient * direction
    return coefficient, math.sqrt(float(rest @ rest) / (len(rest) - 1) / length)
