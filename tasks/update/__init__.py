"""The policy update: advantages, losses, and the DeepSpeed engine on Ray.

Start at `train.update_policy`. Pure functions for any trainer: `advantages`, `losses`, `kl`, `corrections`, `masking` (tensors [B, T] in, tensors out).
From a batch to samples: `samples`; to micro-batches: `batches`. What runs on a rank: `program` (RL), with `objective`, `scoring`, `schedule`, on
the `engine` (DeepSpeed) whose checkpoints `state` writes; `ranks` holds the Ray actors. SFT runs on the same engine and ranks.
"""
