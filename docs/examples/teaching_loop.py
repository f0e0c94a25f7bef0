"""The whole loop in one file: SFT, rollouts, the judge, GRPO. Plain PyTorch on a CPU, a few minutes on two cores.

    python docs/examples/teaching_loop.py

A problem is a chain of elementwise operators. A tiny transformer reads the operators and writes a Triton kernel, one
line of source a token. The corpus shows two styles of kernel for each problem: one launch for all operators, or a
launch for each. Both are right, the first is faster. SFT learns to write either; RL finds out which one pays.

The real loop differs in size, not in kind: several turns, ranks, checkpoints and caching stand in flows/ and tasks/.
Shapes: B answers, T tokens, V words of the vocabulary.
"""

import argparse
import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from kernels_eval import Judge, JudgeConfig
from kernels_eval.rewards import reward_of

# Operators: what PyTorch computes, and the line of Triton that computes the same.
OPERATORS = {
    "relu": ("torch.relu(x)", "tl.maximum(x, 0.0)"),
    "double": ("x + x", "x + x"),
    "square": ("x * x", "x * x"),
    "negate": ("-x", "-x"),
    "sigmoid": ("torch.sigmoid(x)", "tl.sigmoid(x)"),
    "halve": ("x * 0.5", "x * 0.5"),
}
STYLES = ("one launch", "a launch each")
# One token for an operator in the question, another for its line in the answer.
VOCABULARY = ["<pad>", "<write>", "<end>", *STYLES, *(f"? {name}" for name in OPERATORS), *OPERATORS]
ID = {word: index for index, word in enumerate(VOCABULARY)}
PAD, END = ID["<pad>"], ID["<end>"]
LONGEST = 12
"""Tokens of a question with its answer, at most."""

PROBLEM = """import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
{lines}
        return x


def get_inputs():
    return [torch.randn(256, 1024)]


def get_init_inputs():
    return []
"""
KERNEL = """import torch
import triton
import triton.language as tl
from torch import nn

{kernels}

class ModelNew(nn.Module):
    def forward(self, x):
        n = x.numel()
{launches}
        return x
"""
ONE_KERNEL = """
@triton.jit
def kernel_{index}(source, target, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(source + at, mask=at < n, other=0.0)
{lines}
    tl.store(target + at, x, mask=at < n)
"""
LAUNCH = """        y = torch.empty_like(x)
        kernel_{index}[(triton.cdiv(n, 1024),)](x, y, n, BLOCK=1024)
        x = y"""


@dataclass(frozen=True)
class Sizes:
    """Sizes of a run; the defaults take a few minutes on two cores."""

    sft_steps: int = 60
    iterations: int = 8
    problems: int = 8
    """Problems an iteration."""
    samples: int = 8
    """Answers to each: a group, whose mean is the baseline."""
    heldout: int = 12
    workers: int = 2
    seed: int = 0


def problem_source(chain: Sequence[str]) -> str:
    """Return the PyTorch module of a chain of operators, in KernelBench's format."""
    return PROBLEM.format(lines="\n".join(f"        x = {OPERATORS[name][0]}" for name in chain))


def kernel_source(answer: Sequence[str]) -> str:
    """Return the source that an answer's tokens stand for; a text without a style is no kernel."""
    style, *names = answer or [""]
    names = [name for name in names if name in OPERATORS]
    if style not in STYLES:
        return ""
    parts = [names] if style == STYLES[0] else [[name] for name in names]
    kernels = [
        ONE_KERNEL.format(index=index, lines="\n".join(f"    x = {OPERATORS[name][1]}" for name in part))
        for index, part in enumerate(parts)
    ]
    launches = "\n".join(LAUNCH.format(index=index) for index in range(len(parts)))
    return KERNEL.format(kernels="\n".join(kernels), launches=launches)


class Policy(nn.Module):
    """A decoder-only transformer of 40 thousand weights: [B, T] tokens to [B, T, V] logits."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.tokens = nn.Embedding(len(VOCABULARY), width)
        self.places = nn.Embedding(LONGEST, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, len(VOCABULARY))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits of the token that follows each place."""
        length = tokens.shape[1]
        hidden = self.tokens(tokens) + self.places(torch.arange(length))
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.body(hidden, mask=mask, is_causal=True))


def question(chain: Sequence[str]) -> list[int]:
    """Return the tokens of a problem: its operators, then the sign to write."""
    return [*(ID[f"? {name}"] for name in chain), ID["<write>"]]


def batch(rows: Sequence[tuple[list[int], list[int]]]) -> tuple[Tensor, Tensor]:
    """Return padded tokens [B, T] of (question, answer) rows, and which of them are the answer's [B, T]."""
    tokens = torch.full((len(rows), LONGEST), PAD)
    is_answer = torch.zeros(len(rows), LONGEST, dtype=torch.bool)
    for row, (asked, answered) in enumerate(rows):
        tokens[row, : len(asked) + len(answered)] = torch.tensor(asked + answered)
        is_answer[row, len(asked) : len(asked) + len(answered)] = True
    return tokens, is_answer


def log_probs(policy: Policy, tokens: Tensor) -> Tensor:
    """Return the log-probability of each token but the first, given those before it [B, T − 1]."""
    logits = policy(tokens[:, :-1])
    return torch.log_softmax(logits, -1).gather(-1, tokens[:, 1:, None]).squeeze(-1)


def sft(policy: Policy, chains: Sequence[tuple[str, ...]], steps: int) -> list[float]:
    """Teach both styles of the right kernel; return the loss of each step."""
    optimizer = torch.optim.AdamW(policy.parameters(), lr=3e-3)
    pairs = [(question(chain), [ID[style], *map(ID.get, chain), END]) for chain in chains for style in STYLES]
    losses: list[float] = []
    for _ in range(steps):
        tokens, is_answer = batch(random.sample(pairs, min(32, len(pairs))))
        loss = -log_probs(policy, tokens)[is_answer[:, 1:]].mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@torch.no_grad()
def generate(policy: Policy, chain: Sequence[str], samples: int, greedy: bool = False) -> list[list[int]]:
    """Return answers to a problem as token ids, each up to its end; T = 1 unless greedy."""
    asked = question(chain)
    tokens = torch.tensor([asked] * samples)
    while tokens.shape[1] < LONGEST:
        logits = policy(tokens)[:, -1]
        drawn = logits.argmax(-1) if greedy else torch.multinomial(functional.softmax(logits, -1), 1).squeeze(-1)
        tokens = torch.cat([tokens, drawn[:, None]], 1)
    answers = [row[len(asked) :] for row in tokens.tolist()]
    return [row[: row.index(END) + 1] if END in row else row for row in answers]


def judged(judge: Judge, rows: Sequence[tuple[Sequence[str], list[int]]]) -> tuple[Tensor, float]:
    """Return the reward of each (problem, answer) [B], and the share that is correct. Equal kernels are judged once."""
    items = [(problem_source(chain), kernel_source([VOCABULARY[token] for token in answer])) for chain, answer in rows]
    verdicts = judge.evaluate_many(items)
    rewards = torch.tensor([reward_of("kernelbench", verdict) for verdict in verdicts])
    return rewards, sum(verdict.correct for verdict in verdicts) / len(verdicts)


def group_advantages(rewards: Tensor) -> Tensor:
    """Return (reward − mean) / spread within each group [problems, samples]; zero where all are equal."""
    centred = rewards - rewards.mean(1, keepdim=True)
    spread = rewards.std(1, keepdim=True)
    return torch.where(spread > 1e-6, centred / (spread + 1e-6), torch.zeros_like(centred))


def grpo_loss(new: Tensor, old: Tensor, advantages: Tensor, mask: Tensor, clip: float = 0.2) -> Tensor:
    """Return the clipped policy loss, a mean over the answers' tokens; log-probabilities and mask are [B, T]."""
    ratio = (new - old).exp()
    gain = torch.minimum(ratio * advantages[:, None], ratio.clamp(1 - clip, 1 + clip) * advantages[:, None])
    return -(gain * mask).sum() / mask.sum()


def iteration(
    policy: Policy, optimizer: torch.optim.Optimizer, judge: Judge, chains: Sequence[tuple[str, ...]], samples: int
) -> float:
    """Roll out, judge and update twice on the batch; return the mean reward."""
    rows = [(chain, answer) for chain in chains for answer in generate(policy, chain, samples)]
    rewards, _ = judged(judge, rows)
    advantages = group_advantages(rewards.view(len(chains), samples)).flatten()
    tokens, is_answer = batch([(question(chain), answer) for chain, answer in rows])
    mask = is_answer[:, 1:]
    old = log_probs(policy, tokens).detach()
    for _ in range(2):
        loss = grpo_loss(log_probs(policy, tokens), old, advantages, mask)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 1.0)
        optimizer.step()
    return rewards.mean().item()


def evaluate(policy: Policy, judge: Judge, chains: Sequence[tuple[str, ...]]) -> tuple[float, float]:
    """Return the mean reward of greedy answers to held-out problems, and the share that is correct."""
    rewards, correct = judged(judge, [(chain, generate(policy, chain, 1, greedy=True)[0]) for chain in chains])
    return rewards.mean().item(), correct


def run(sizes: Sizes) -> dict[str, tuple[float, float]]:
    """Train, and return (mean reward, share correct) of greedy held-out answers before and after RL."""
    random.seed(sizes.seed)
    torch.manual_seed(sizes.seed)
    chains = [chain for length in (2, 3) for chain in itertools.permutations(OPERATORS, length)]
    random.shuffle(chains)
    heldout, train = chains[: sizes.heldout], chains[sizes.heldout :]
    policy = Policy()
    losses = sft(policy, train, sizes.sft_steps)
    print(f"SFT: loss {losses[0]:.2f} to {losses[-1]:.2f}")
    optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
    with Judge(JudgeConfig(workers=sizes.workers, device="cpu", compile="never")) as judge:
        before = evaluate(policy, judge, heldout)
        for number in range(sizes.iterations):
            reward = iteration(policy, optimizer, judge, random.sample(train, sizes.problems), sizes.samples)
            print(f"iteration {number}: mean reward {reward:.2f}")
        after = evaluate(policy, judge, heldout)
    for name, (reward, correct) in (("before RL", before), ("after RL", after)):
        print(f"held out, greedy, {name}: mean reward {reward:.2f}, correct {correct:.2f}")
    return {"before": before, "after": after}


def main() -> None:
    """Read sizes from the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in vars(Sizes()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default)
    run(Sizes(**vars(parser.parse_args())))


if __name__ == "__main__":
    main()
