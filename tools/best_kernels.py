"""Exhaustive search for the best kernel of held-out problems: every style of the corpus, and every tuning when fused.

Shows how much of what can be reached a finished run reaches. The problems are the standard held-out ones of the run's
configuration, the judge is the run's held-out evaluation's. Kernels are first judged without machine code, which takes
most of the time; the best of them then with it.

    python tools/best_kernels.py runs/RUN --problems 48
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import polars as pl

from flows.run.state import read_state
from flows.settings.configuration import RunConfig, load_configuration
from kernels_eval import Judge
from kernels_eval.rewards import reward_of
from tasks.problems.problem_set import read_problems
from tasks.problems.row import ProblemRow, Split, Tier
from tasks.problems.synthetic.composition import parse_composition
from tasks.problems.synthetic.sources import FIXED_STYLES, Style, kernel_source
from tasks.problems.synthetic.suite import columns_of
from tasks.problems.synthetic.tuning import tunings

FINALISTS = 2
"""Kernels of a problem that are judged with machine code: those of the best estimates without it."""


def main() -> None:
    """Search, compare with the run's greedy answers, print both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="folder of a finished run on the generated suite")
    parser.add_argument("--problems", type=int, default=48, help="held-out problems to search, in the suite's order")
    parser.add_argument("--out", type=Path, help="JSON file of the best reward by problem")
    arguments = parser.parse_args()
    config = load_configuration(arguments.run / "config.yaml")
    problems = read_state(arguments.run).problems
    if problems is None:
        parser.error(f"{arguments.run}: expected the folder of a finished run")
    rows = [row for row in read_problems(problems, Split.HELDOUT) if row.tier is Tier.STANDARD]
    best = search(rows[: arguments.problems], config)
    found = {name: reward for name, reward in best.items() if reward is not None}
    print(f"best kernel known: {len(found)} of {len(rows)} problems ({len(best)} searched)")
    for policy, greedy in read_state(arguments.run).greedy_evaluations.items():
        table = pl.read_parquet(greedy.path / "per_problem.parquet").filter(pl.col("problem_id").is_in(list(found)))
        rewards = dict(table.select("problem_id", "mean_reward").iter_rows())
        share = fmean(rewards.values()) / fmean(found[name] for name in rewards)
        print(f"policy {policy}, greedy: final reward {fmean(rewards.values()):.3f}, {share:.2f} of the best known")
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(best, indent=1) + "\n", encoding="utf-8")


def search(rows: Sequence[ProblemRow], config: RunConfig) -> dict[str, float | None]:
    """Return the highest reward of any kernel by problem; None where no kernel is right."""
    reward = config.rollout.episode.reward
    judge = config.judge.model_copy(update={"compile": "never", "full_size_share": 0.0})
    compiling = config.judge.model_copy(update={"compile": "correct", "compile_share": 1.0, "full_size_share": 1.0})
    best: dict[str, float | None] = {}
    with Judge(judge) as quick, Judge(compiling) as whole:
        for row in rows:
            kernels = [(row.problem, kernel) for kernel in kernels_of(row)]
            rewards = [reward_of(reward, verdict) for verdict in quick.evaluate_many(kernels)]
            order = sorted(range(len(kernels)), key=lambda place: rewards[place], reverse=True)
            verdicts = whole.evaluate_many([kernels[place] for place in order[:FINALISTS]])
            right = [reward_of(reward, verdict) for verdict in verdicts if verdict.correct]
            best[row.problem.problem_id] = max(right, default=None)
    return best


def kernels_of(row: ProblemRow) -> list[str]:
    """Return the right kernels of a generated problem: in every style, and fused with every tuning."""
    composition = parse_composition(row.composition)
    styled = [kernel_source(composition, style) for style in FIXED_STYLES]
    tuned = [
        kernel_source(composition, Style.FUSED, tuning=tuning)
        for tuning in tunings(composition, columns_of(row.problem))
    ]
    return list(dict.fromkeys([*styled, *tuned]))


if __name__ == "__main__":
    main()
