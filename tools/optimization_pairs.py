"""Speed of the module corpus's optimizations: how much longer their slow kernels take, by family and as judged.

    python tools/optimization_pairs.py [--pairs 300] [--seed 0] [--earlier] [--workers 2] [--out ROWS.json]

Pairs are drawn and judged on the CPU, with estimated times and without machine code, as `sft.data.compile: never` does.
A line a family: pairs, those whose slow kernel is right, those whose kernel is at least 1.2 times as fast, and the
median of that ratio. `--earlier` looks at the pairs of `draw_pairs` with an earlier kernel, which may be wrong.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import median

from kernels_eval import Judge, JudgeConfig, Verdict
from tasks.problems.modules.corpus import draw_optimizations, draw_pairs, problem_of
from tasks.problems.modules.pair import ModulePair
from tasks.sft.drafts import LEAST_GAIN

_MOST_DRAWN = 1_000_000


@dataclass(frozen=True)
class Gain:
    """A judged pair."""

    family: str
    operator: str
    earlier: str
    """Status of the earlier kernel."""
    answer: str
    """Status of the kernel."""
    ratio: float | None
    """Time of the earlier kernel over the answer's; None unless both are right."""
    issues: tuple[str, ...]
    """Kinds of the earlier kernel's issues."""


def gain_of(pair: ModulePair, earlier: Verdict, answer: Verdict) -> Gain:
    """Return the pair's result."""
    both = earlier.correct and answer.correct
    ratio = (
        earlier.candidate_ms / answer.candidate_ms if both and earlier.candidate_ms and answer.candidate_ms else None
    )
    kinds = tuple(dict.fromkeys(issue.kind.value for issue in earlier.issues))
    return Gain(pair.family, pair.operator, earlier.status.value, answer.status.value, ratio, kinds)


def judged(pairs: Sequence[ModulePair], workers: int) -> list[Gain]:
    """Judge both kernels of each pair; they are in the order of the pairs."""
    items = [
        (problem_of(pair), kernel)
        for pair in pairs
        for kernel in (pair.earlier_source, pair.kernel_source)
        if kernel is not None
    ]
    with Judge(JudgeConfig(compile="never", workers=workers, full_size_share=0.0, timeout_s=60)) as judge:
        verdicts = judge.evaluate_many(items, _tell)
    return [
        gain_of(pair, earlier, answer)
        for pair, earlier, answer in zip(pairs, verdicts[::2], verdicts[1::2], strict=True)
    ]


def _tell(done: int, total: int, **figures: float) -> None:
    print(f"\r{done} of {total} kernels", end="" if done < total else "\n", file=sys.stderr, flush=True)


def table(gains: Iterable[Gain]) -> list[str]:
    """Return the lines of the table, the last of them over all families."""
    by_family = defaultdict[str, list[Gain]](list)
    for gain in gains:
        by_family[gain.family].append(gain)
        by_family["~ all"].append(gain)
    lines = [f"{'family':<24} pairs  right  >= {LEAST_GAIN}  median"]
    for family, found in sorted(by_family.items()):
        ratios = [gain.ratio for gain in found if gain.ratio is not None]
        fast = sum(ratio >= LEAST_GAIN for ratio in ratios)
        middle = f"{median(ratios):.2f}" if ratios else "-"
        lines.append(f"{family.removeprefix('~ '):<24} {len(found):>5}  {len(ratios):>5}  {fast:>6}  {middle:>6}")
    return lines


def main() -> None:
    """Draw, judge, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--earlier", action="store_true", help="pairs of draw_pairs that have an earlier kernel")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, help="JSON file of a row a pair")
    arguments = parser.parse_args()
    if arguments.earlier:
        drawn = (pair for pair in draw_pairs(_MOST_DRAWN, arguments.seed) if pair.earlier_source is not None)
        pairs = list(islice(drawn, arguments.pairs))
    else:
        pairs = list(draw_optimizations(arguments.pairs, arguments.seed))
    gains = judged(pairs, arguments.workers)
    print("\n".join(table(gains)))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps([asdict(gain) for gain in gains], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
