"""Canary: compares a server's log-probabilities with the checkpoint's on fixed prompts.

Each server scores a few fixed prompts and samples some tokens after each. The checkpoint, loaded with transformers,
gives the log-probabilities of the same tokens. Two results are refused:

- `mean |Δ|` above the threshold: other weights, another model, a broken kernel. (bfloat16 against float32: about 0.04.)
- stale weights: one update moves log-probabilities by less than bfloat16 rounding, so stale weights pass the threshold.
  But the checkpoints give the expected change d = new − old. A server is stale if its answers changed by much less than
  d although it repeats itself more exactly (each prompt is scored twice, alone); or if they changed by no more than it
  repeats itself, and their change, projected on d, is near 0 instead of 1. If both are lost in noise, only the label of
  each answer is left (`weight_version`). Answers that changed by more than that are never stale: a checkpoint in
  bfloat16 is rounded itself, and d is then mostly noise that no server shares.
"""

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tasks.cluster.devices import has_gpu

NEW_TOKENS = 16
"""Tokens sampled after each prompt."""
PROMPT_TOKENS = 256
"""Prompts are cut to so many tokens."""
_loading = threading.Lock()
"""transformers uses global state while loading: one thread at a time."""
_JITTER_ROOM = 3.0
"""Multiple of its jitter by which a server's answers may change without an update."""
_SURE = 5.0
"""Standard errors below 0.5 at which a share counts as stale. At 3, noise would stop one good update in a thousand."""
_SMALLEST_STEP = 1e-5
"""Changes of log-probabilities (root mean square) below this may be lost when the server rounds the weights."""

_TEXTS = (
    "import torch\nimport torch.nn as nn\n\n\n"
    "class Model(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)\n",
    "class Model(nn.Module):\n    def __init__(self, size):\n        super().__init__()\n"
    "        self.norm = nn.LayerNorm(size)\n\n"
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
    """Change of a server's answers with an update, over the canary's prompts; rms of log-probabilities."""

    wanted: float
    """Change of the checkpoint's log-probabilities."""
    found: float
    """Change of the server's."""
    jitter: float
    """Difference of the server's own, asked twice."""
    share: float
    """Projection of the found change on the wanted one: 1 if the server was updated, 0 if not."""
    share_error: float
    """Standard error of `share`."""

    @property
    def is_stale(self) -> bool:
        """True if the server certainly kept the old weights."""
        if self.wanted < _SMALLEST_STEP:
            return False
        stood_still = self.found <= 0.1 * self.wanted + _JITTER_ROOM * self.jitter
        is_exact = _JITTER_ROOM * self.jitter <= 0.4 * self.wanted
        return stood_still and (is_exact or self.share + _SURE * self.share_error < 0.5)


@dataclass(frozen=True, slots=True)
class CanaryResult:
    """Comparison of one server with the checkpoint."""

    tokens: int
    mean_difference: float
    max_difference: float
    shift: LogprobShift | None
    """None if the server's earlier weights are not known."""

    def refusal(self, threshold: float) -> str | None:
        """Return the reason these are not the checkpoint's weights, or None if they may be."""
        found = (
            f"over {self.tokens} tokens the log-probabilities differ from the checkpoint's by "
            f"{self.mean_difference:.4g} (mean) and {self.max_difference:.4g} (max)"
        )
        if not self.mean_difference <= threshold:
            return f"{found}, expected a mean of at most {threshold:g} (rollout.sglang.canary_threshold)"
        if self.shift is not None and self.shift.is_stale:
            return (
                "it still answers from the weights before the update: its log-probabilities moved by "
                f"{self.shift.found:.3g}, the checkpoint's by {self.shift.wanted:.3g} (rms); {found}"
            )
        return None


def canary_prompts(tokenizer: Any, count: int, context_tokens: int) -> list[tuple[int, ...]]:
    """Return `count` fixed prompts, encoded like the policy's turns; they and their continuations fit the context."""
    from tasks.models.chat import encode_prompt
    from tasks.models.chat_templates import Message, Role

    room = max(2, min(PROMPT_TOKENS, context_tokens - NEW_TOKENS))
    prompts: list[tuple[int, ...]] = []
    for number in range(count):
        text = _TEXTS[number % len(_TEXTS)]
        if number >= len(_TEXTS):
            text += f"# {number}\n"
        # Keep the end: the template's generation prompt is there.
        prompts.append(tuple(encode_prompt(tokenizer, [Message(role=Role.USER, content=text)])[-room:]))
    return prompts


def reference_logprobs(folder: Path, dtype: str, sequences: Sequence[tuple[int, ...]]) -> list[tuple[float, ...]]:
    """Return the checkpoint's log-probabilities of all tokens but the first of each sequence, from transformers."""
    import torch

    from tasks.models.policy import load_policy

    with _loading:
        model: Any = load_policy(folder, dtype).eval()
    if has_gpu():
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
    """Return the record of accepted answers."""
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
