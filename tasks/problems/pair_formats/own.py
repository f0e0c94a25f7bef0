"""Pairs in our columns, those of the SFT stage's `pairs.parquet`."""

from kernels_eval.problem import check_problem_source, parsed
from tasks.problems.pair_formats.pair import Pair, Reason, UnconvertibleError, needed
from tasks.problems.row import Row, text

COLUMNS = ("problem_source", "kernel_source")
OPTIONAL = ("pair_id", "composition", "style", "kind", "earlier_source")


def pair_of(row: Row) -> Pair:
    """Return the row's pair; UnconvertibleError for a row of another kind than `direct`, InputError for a bad one."""
    if (text(row, "kind") or "direct") != "direct":
        raise UnconvertibleError(Reason.NOT_DIRECT)
    problem, kernel = needed(row, "problem_source"), needed(row, "kernel_source")
    check_problem_source(problem, row.where)
    parsed(kernel, f"{row.where}: kernel_source")
    return Pair(
        pair_id=text(row, "pair_id") or "",
        problem_source=problem,
        kernel_source=kernel,
        earlier_source=text(row, "earlier_source"),
        composition=text(row, "composition") or "",
        style=text(row, "style") or "",
    )
