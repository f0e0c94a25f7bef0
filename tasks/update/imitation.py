"""Imitation of a batch's best answers: the best correct kernel of a problem is an answer to each of its prompts.

That is what rejection sampling learns from, here of the policy as it is now, beside the policy loss. A turn that was
given a kernel which is nearly as good as the best one is no prompt to learn from.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from tasks.agents.config import SLACK
from tasks.training.batches import TrainedSequence
from tasks.trajectories.stops import is_stop

_ANSWER = ("group_id", "role")


def best_answers(turns: pl.DataFrame, roles: Sequence[str] = ()) -> tuple[TrainedSequence, ...]:
    """Return each distinct prompt of these roles (all if empty) with the best correct answer of its problem and role.

    `turns`: those of all roles without faults, since one role is given another's kernel. A stop is no answer to learn:
    its verdict is that of the kernel that it keeps.
    """
    correct = pl.col("verdict").struct.field("correct")
    earlier = pl.col("reward").cum_max().shift(1).over("trajectory_id", order_by="turn_index")
    turns = turns.with_columns(earlier=earlier, stops=is_stop())
    if roles:
        turns = turns.filter(pl.col("role").is_in(list(roles)))
    best = (
        turns.filter(correct & ~pl.col("stops"))
        .sort("reward", "trajectory_id", "turn_index", descending=[True, False, False])
        .unique(_ANSWER, keep="first", maintain_order=True)
        .select(*_ANSWER, best_reward="reward", best_answer="response_token_ids")
    )
    prompts = (
        turns.join(best, on=_ANSWER, how="inner")
        .filter(pl.col("earlier").is_null() | (pl.col("best_reward") - pl.col("earlier") > SLACK))
        .sort("group_id", "trajectory_id", "turn_index")
        .select("prompt_token_ids", "best_answer")
    )
    return tuple(trained_answer(*row) for row in dict.fromkeys((tuple(p), tuple(a)) for p, a in prompts.iter_rows()))


def trained_answer(prompt: Sequence[int], response: Sequence[int]) -> TrainedSequence:
    """Return a prompt and a response of token ids, whose response is trained."""
    token_ids = np.asarray([*prompt, *response], dtype=np.int32)
    return TrainedSequence(token_ids, np.arange(len(token_ids)) >= len(prompt))
