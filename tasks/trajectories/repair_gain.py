"""Gain of repairs: the share of right kernels after a wrong one, less that of independent first answers.

A turn after nothing but wrong turns is a repair. The answer that it is compared with is a first answer to the same
problem in another conversation of the same policy: P(right | repair) − P(right | fresh). Leaving out the conversation's
own first answer, which is wrong, makes the comparison fair on hard problems, where most repairs are tried.
"""

from collections.abc import Sequence

import polars as pl


def repair_counts(turns: pl.DataFrame, asked: Sequence[str], conversation: Sequence[str]) -> pl.DataFrame:
    """Return one row a question and turn, sorted: the columns `asked`, `turn_index`, `repairs`, `repaired`, `fresh`.

    `turns` has `turn_index` (from 0), `correct` and the columns named: `asked` tells questions apart that one policy
    was asked several times, `conversation` its conversations. `repairs`: number of turns after nothing but wrong ones;
    `repaired`: right ones of them; `fresh`: right ones expected of as many first answers. Questions that were asked
    once are left out: there is no other first answer.
    """
    correct, index = pl.col("correct").fill_null(False).cast(pl.Float64), pl.col("turn_index")
    first = turns.filter(index == 0).group_by(asked).agg(pl.len().alias("asked"), correct.sum().alias("right"))
    before = correct.cum_sum().over(conversation) - correct
    repairs = turns.sort(*conversation, "turn_index").filter((before == 0) & (index > 0))
    return (
        repairs.join(first.filter(pl.col("asked") > 1), on=asked, nulls_equal=True)
        .group_by([*asked, "turn_index"])
        .agg(
            pl.len().cast(pl.Float64).alias("repairs"),
            correct.sum().alias("repaired"),
            (pl.col("right") / (pl.col("asked") - 1)).sum().alias("fresh"),
        )
        .sort(*asked, "turn_index")
    )
