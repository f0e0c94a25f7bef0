"""The policy update (RL): advantages, losses, and one optimizer step after another on DeepSpeed ranks.

Start at `train.update_policy`. Pure functions for any trainer: `advantages`, `losses`, `kl`, `corrections`. `dataset`
makes the samples, `credit_assignment` their advantages. On each rank: `program` with `precompute`, `step`, `objective`.
"""
