"""Network of the tester: averages over the hashed n-grams of problem and kernel, and what the two have in common.

Averages of embeddings do not see the order of distant tokens; n-grams see that of near ones. The products of the two
averages let it see whether the kernel does what the problem asks for.
"""

import re
import zlib
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import nn

_TOKEN = re.compile(r"[A-Za-z_]\w*|\d+(?:\.\d+)?|[^\s\w]")
_LONGEST = 3
"""Tokens of an n-gram at most."""
_WIDTH = 48
_HIDDEN = 96
BUCKETS = 1 << 15
"""Places that n-grams are hashed into; two that share a place are not told apart."""


@lru_cache(maxsize=65536)
def hashed(text: str) -> tuple[int, ...]:
    """Return the places of all n-grams of a text, of one to three tokens; never none."""
    tokens = _TOKEN.findall(text)
    grams = (
        " ".join(tokens[first : first + length])
        for length in range(1, _LONGEST + 1)
        for first in range(len(tokens) - length + 1)
    )
    return tuple(zlib.crc32(gram.encode()) % BUCKETS for gram in grams) or (0,)


class VerdictNetwork(nn.Module):
    """Logits of every label for pairs of problem and kernel."""

    def __init__(self, labels: int) -> None:
        super().__init__()
        self.problem = nn.EmbeddingBag(BUCKETS, _WIDTH, mode="mean")
        self.kernel = nn.EmbeddingBag(BUCKETS, _WIDTH, mode="mean")
        self.head = nn.Sequential(
            nn.Linear(3 * _WIDTH, _HIDDEN), nn.ReLU(), nn.Dropout(0.1), nn.Linear(_HIDDEN, labels)
        )

    def forward(self, pairs: Sequence[tuple[str, str]]) -> torch.Tensor:
        """Return logits, (pairs, labels), for (problem source, kernel source)."""
        problem = self.problem(*_bags([problem for problem, _ in pairs]))
        kernel = self.kernel(*_bags([kernel for _, kernel in pairs]))
        # Averages over hundreds of n-grams are small: their product needs a scale of its own.
        return self.head(torch.cat([problem, kernel, _WIDTH * problem * kernel], dim=1))


def _bags(texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the places of all texts one after the other, and where each text begins."""
    bags = [hashed(text) for text in texts]
    offsets = [0]
    for bag in bags[:-1]:
        offsets.append(offsets[-1] + len(bag))
    return torch.tensor([place for bag in bags for place in bag]), torch.tensor(offsets)
