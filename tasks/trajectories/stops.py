"""Stops: turns on which an agent wrote no kernel, but kept the best one so far, whose verdict and reward they have."""

import polars as pl

from tasks.trajectories.schema import Termination


def is_stop() -> pl.Expr:
    """Return an expression over whole episodes' rows of the turns table: true for the last turn of one that stopped."""
    is_last = pl.col("turn_index") == pl.col("turn_index").max().over("trajectory_id")
    return is_last & (pl.col("termination") == Termination.AGENT_STOPPED.value)
