"""The training engine shared by SFT and the policy update: DeepSpeed on Ray ranks, batches, scoring, checkpoints."""
