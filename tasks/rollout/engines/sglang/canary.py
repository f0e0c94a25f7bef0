"""The canary: does a server compute what the checkpoint says?

Each server scores a few fixed prompts and continues them by some sampled tokens, through its own prefill and decoding. The
checkpoint, loaded with transformers, gives the log-probabilities of the same tokens. Two things are refused:

- `mean |Δ|` above the threshold: other weights, another model, a broken kernel. (bfloat16 against float32: about 0.04.)
- weights from before: one update moves log-probabilities by far less than bfloat16 rounds, so that stale weights pass the
  threshold. But the checkpoints say in which direction d = new − old the answers had to change, and by how much. A server
  is stale if its own answers changed by much less than d, although it repeats itself more exactly than that (each prompt
  is scored twice, alone); or if their change, projected on d, is near 0 rather than 1. Where neither can be told
  from the noise, the label that each answer carries (`weight_version`) is what is left.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NEW_TOKENS = 16
"""Tokens sampled after each prompt."""
PROMPT_TOKENS = 256
"""Prompts are cut to so many tokens."""
_loading = threading.Lock()
"""transformers loads models with the help of global state: one thread at a time."""
_JITTER_ROOM = 3.0
"""Times its jitter by which one answer of a server may move while the server stands still."""
_SURE = 5.0
"""Standard errors below the half way at which a share convicts. At 3 noise would stop one healthy update of a thousand."""
_SMALLEST_STEP = 1e-5
"""Changes of log-probabilities (root mean square) below this may be lost when the server rounds the weights."""

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
    prompt_logprobs_again: tuple[float, ...]
    """Length p − 1: the prompt, scored a second time."""


@dataclass(frozen=True, slots=True)
class LogprobShift:
    """How a server's answers changed with an update, over the canary's prompts. Root mean squares of log-probabilities."""

    wanted: float
    """By how much the checkpoint's changed."""
    found: float
    """By how much the server's did."""
    jitter: float
    """By how much the server's differ from themselves, asked twice."""
    share: float
    """Projection of the found change on the wanted one: 1 where the server went along, 0 where it stayed."""
    share_error: float
    """Standard error of `share`."""

    @property
    def is_stale(self) -> bool:
        """True where the server surely stayed where it was."""
        if self.wanted < _SMALLEST_STEP:
            return False
        stood_still = self.found <= 0.1 * self.wanted + _JITTER_ROOM * self.jitter
        is_exact = _JITTER_ROOM * self.jitter <= 0.4 * self.wanted
        return (stood_still and is_exact) or self.share + _SURE * self.share_error < 0.5


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """One server against the checkpoint."""

    tokens: int
    mean_difference: float
    max_difference: float
    shift: LogprobShift | None
    """None where it is not known what the server held before."""

    def refusal(self, threshold: float) -> str | None:
        """Return why these are not the checkpoint's weights; None where they may be."""
        found = (
            f"over {self.tokens} tokens the log-probabilities differ from the checkpoint's by {self.mean_difference:.4g} "
            f"(mean) and {self.max_difference:.4g} (max)"
        )
        if not self.mean_difference <= threshold:
            return f"{found}, expected a mean of at most {threshold:g} (rollout.sglang.canary_threshold)"
        if self.shift is not None and self.shift.is_stale:
            return (
                f"it still answers from the weights before the update: its log-probabilities moved by {self.shift.found:.3g}, "
                f"the checkpoint's by {self.shift.wanted:.3g} (rms); {found}"
            )
        return None


def canary_prompts(tokenizer: Any, count: int, context_tokens: int) -> list[tuple[int, ...]]:
    """Return `count` fixed prompts, written as the policy's turns are; they and their continuations fit the context."""
    from tasks.models.chat import encode_prompt
    from tasks.models.chat_templates import Message, Role

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

    with _loading:
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


@dataclass(frozen=True, slots=True)
class VerifiedWeights:
    """Weights that a server was verified to hold, on the canary's prompts of p tokens: p − 1 log-probabilities each."""

    version: str
    prompts: tuple[tuple[int, ...], ...]
    answered: tuple[tuple[float, ...], ...]
    """By the server."""
    expected: tuple[tuple[float, ...], ...]
    """By the checkpoint."""


def verified_weights(version: str, answers: Sequence[Answer], expected: Sequence[Sequence[float]]) -> VerifiedWeights:
    """Return what to remember of answers that were accepted."""
    return VerifiedWeights(
        version,
        tuple(answer.token_ids[: answer.prompt_tokens] for answer in answers),
        tuple(answer.logprobs[: answer.prompt_tokens - 1] for answer in answers),
        tuple(tuple(row[: a.prompt_tokens - 1]) for row, a in zip(expected, answers, strict=True)),
    )


def compare(
    answers: Sequence[Answer], expected: Sequence[Sequence[float]], before: VerifiedWeights | None = None
) -> CanaryResult:
    """Compare a server's answers with the checkpoint's log-probabilities of the same tokens.

    `before`: the other weights that this server held until now. Only the prompts tell whether it still does: what is
    sampled after them is another text under other weights.
    """
    differences = np.abs(np.concatenate([a.logprobs for a in answers]) - np.concatenate(list(expected)))
    shift = None
    if before is not None:
        now = verified_weights("", answers, expected)
        if now.prompts == before.prompts:
            again = np.concatenate([answer.prompt_logprobs_again for answer in answers])
            shift = _shift(
                found=np.concatenate(now.answered) - np.concatenate(before.answered),
                wanted=np.concatenate(now.expected) - np.concatenate(before.expected),
                jitter=again - np.concatenate(now.answered),
            )
    return CanaryResult(len(differences), float(differences.mean()), float(differences.max()), shift)


def _shift(found: np.ndarray, wanted: np.ndarray, jitter: np.ndarray) -> LogprobShift:
    length = max(float(wanted @ wanted), 1e-30)
    share = float(found @ wanted) / length
    rest = found - share * wanted
    error = math.sqrt(float(rest @ rest) / max(len(rest) - 1, 1) / length)
    return LogprobShift(_rms(wanted), _rms(found), _rms(jitter), share, error)


def _rms(values: np.ndarray) -> float:
    return math.sqrt(float(values @ values) / len(values))
