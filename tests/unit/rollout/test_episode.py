"""The choice of episodes is a function of seed and iteration."""

import shlex

from kernels_eval.problem import Problem
from tasks.problems.row import ProblemRow, Split
from tasks.rollout.episode import plan_episodes

ROWS = [ProblemRow(problem=Problem(problem_id=f"p{n}", source=f"x = {n}"), split=Split.TRAIN) for n in range(20)]
HELDOUT = [row.model_copy(update={"split": Split.HELDOUT}) for row in ROWS]


def drawn(iteration: int, seed: int, problems: int = 5) -> list[str]:
    plans = plan_episodes(ROWS, Split.TRAIN, problems, 3, iteration, seed)
    assert [plan.sample_index for plan in plans] == [0, 1, 2] * problems
    return [plan.row.problem.problem_id for plan in plans[::3]]


def test_training_problems_are_drawn_without_replacement_by_seed_and_iteration() -> None:
    assert drawn(1, 0) == drawn(1, 0)
    assert len(set(drawn(1, 0))) == 5
    assert drawn(1, 0) != drawn(2, 0) != drawn(2, 1)


def test_held_out_problems_are_all_played() -> None:
    plans = plan_episodes(HELDOUT, Split.HELDOUT, 5, 2, 1, 0)
    assert len(plans) == 40


def test_fewer_problems_than_asked_for_are_all_played() -> None:
    assert len(plan_episodes(ROWS, Split.TRAIN, 100, 1, 1, 0)) == 20


def test_names_and_seeds_tell_apart_splits_iterations_samples_and_turns() -> None:
    plans = [
        plan
        for rows, split in ((ROWS, Split.TRAIN), (HELDOUT, Split.HELDOUT))
        for iteration in (0, 1)
        for plan in plan_episodes(rows, split, 20, 2, iteration, 0)
    ]
    names = [plan.trajectory_id for plan in plans]
    assert len(set(names)) == len(names)
    seeds = {plan.turn_seed(turn) for plan in plans for turn in range(3)}
    assert len(seeds) == 3 * len(plans)
    assert max(seeds) < 2**62


def test_a_trajectory_id_is_one_word_of_a_shell() -> None:
    problem = Problem(problem_id="generated/abs>sum & $(x) 'y'/8x16", source="x = 1")
    (plan,) = plan_episodes([ProblemRow(problem=problem, split=Split.TRAIN)], Split.TRAIN, 1, 1, 0, 0)
    assert plan.trajectory_id.startswith("train-0000-generated/abs.sum.")
    assert shlex.quote(plan.trajectory_id) == plan.trajectory_id
    assert plan.group_id.endswith(problem.problem_id)
