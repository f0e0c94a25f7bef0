"""The training engine of SFT and the policy update: DeepSpeed on Ray ranks, micro-batches, scores, checkpoints.

`ranks` starts the processes and runs a `program` on them; in each, `engine` holds the model, `batches` and
`attention` lay sequences out, `scoring` computes log-probabilities, `checkpoint` writes what `retention` keeps.
"""
