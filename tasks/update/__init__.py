"""The policy update (RL): advantages, losses, and one optimizer step after another on DeepSpeed ranks.

Start at `train.update_policy`. Pure functions for any trainer (tensors in, tensors out): `advantages` (GRPO, RLOO,
GAE and the others), `losses` (PPO, GSPO, CISPO, DPPO, aggregation), `kl`, `corrections`. The data set: `dataset`;
from scores to advantages per token: `credit_assignment`. On each rank: `program`, with `precompute`, `step` and
`objective`. Engine and ranks: `tasks.training`.
"""
