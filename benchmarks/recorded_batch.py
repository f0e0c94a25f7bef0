"""A recorded batch with the length skew of kernel rollouts: most responses are short, a few are twenty times as long.

Token ids and advantages are drawn from a seed: every compared trainer gets the same ones.
"""

from dataclasses import dataclass

import numpy as np

from tasks.training.batches import TrainedSequence
from tasks.update.credit_assignment import Sample


@dataclass(frozen=True)
class RecordedBatch:
    """Prompts, responses and one advantage a response; rows of one group share the prompt."""

    prompts: list[list[int]]
    responses: list[list[int]]
    advantages: list[float]
    groups: list[str]

    @property
    def tokens(self) -> int:
        """Tokens of all prompts and responses, padding not counted."""
        return sum(map(len, self.prompts)) + sum(map(len, self.responses))

    @property
    def response_tokens(self) -> int:
        """Tokens that are learnt."""
        return sum(map(len, self.responses))

    def samples(self, log_prob: float = -1.0) -> tuple[Sample, ...]:
        """Return the update's samples, the advantage as score, `log_prob` as every log-probability of the sampler."""
        return tuple(
            Sample(
                sequence=TrainedSequence(
                    np.asarray(prompt + response, dtype=np.int32), np.arange(len(prompt) + len(response)) >= len(prompt)
                ),
                sampler_log_probs=np.full(len(response), log_prob, dtype=np.float32),
                return_=advantage,
                score=advantage,
                group=(group, 0, "solver"),
                trajectory=f"{group}-{row}",
            )
            for row, (prompt, response, advantage, group) in enumerate(
                zip(self.prompts, self.responses, self.advantages, self.groups, strict=True)
            )
        )


def recorded_batch(
    groups: int, samples: int, vocabulary: int, shortest: int, longest: int, prompt_share: float = 0.25
) -> RecordedBatch:
    """Draw a batch whose sequences (prompt and response) have log-uniform lengths from `shortest` to `longest` tokens.

    A prompt takes `prompt_share` of its group's shortest sequence. Both extremes of the lengths occur.
    """
    random = np.random.default_rng(0)
    lengths = np.exp(random.uniform(np.log(shortest), np.log(longest), (groups, samples))).astype(int)
    lengths[0, 0], lengths[-1, -1] = shortest, longest
    prompts: list[list[int]] = []
    responses: list[list[int]] = []
    advantages: list[float] = []
    names: list[str] = []
    for group in range(groups):
        size = max(int(lengths[group].min() * prompt_share), 2)
        prompt = random.integers(10, vocabulary, size).tolist()
        scores = random.choice([0.0, 0.1, 0.3, 1.6], samples)
        scores[0], scores[-1] = 0.0, 1.6
        centred = (scores - scores.mean()) / (scores.std(ddof=1) + 1e-6)
        for sample in range(samples):
            prompts.append(prompt)
            responses.append(random.integers(10, vocabulary, int(lengths[group, sample]) - size).tolist())
            advantages.append(float(centred[sample]))
            names.append(f"g{group:03d}")
    return RecordedBatch(prompts, responses, advantages, names)
