"""A file of drawn pairs, JSON Lines in our own columns (tasks.problems.pair_formats.own).

A line has `pair_id`, `problem_source`, `kernel_source`, `composition` (the operators), `style` (`family:style`) and, of
a repair or an optimization, `earlier_source`.
"""

import json
from collections import Counter
from itertools import chain
from pathlib import Path

from tasks.problems.modules.corpus import draw_optimizations, draw_pairs


def write_pairs(
    path: Path,
    count: int,
    seed: int,
    unseen: frozenset[str] = frozenset(),
    long_chains: float = 0.0,
    optimizations: int = 0,
) -> Counter[str]:
    """Write `count` pairs without an unseen operator, `long_chains` of them long chains, then `optimizations` that
    answer a slow kernel. Return numbers by family.
    """
    families: Counter[str] = Counter()
    drawn = chain(draw_pairs(count, seed, unseen, long_chains), draw_optimizations(optimizations, seed, unseen))
    with path.open("w", encoding="utf-8") as file:
        for number, pair in enumerate(drawn):
            families[pair.family] += 1
            row = {
                "pair_id": f"module-{number:06d}",
                "problem_source": pair.problem_source,
                "kernel_source": pair.kernel_source,
                "composition": pair.operator,
                "style": f"{pair.family}:{pair.style}",
            }
            if pair.earlier_source is not None:
                row["earlier_source"] = pair.earlier_source
            file.write(json.dumps(row) + "\n")
    return families
