"""Advantage estimators, one file each: `update.advantage` names a file here, or a function of your own.

A file declares what its estimator compares, which decides what it is called with and which groups an update leaves out:

    @estimator(compares="turns")
    def advantages(scores: Tensor, groups: Sequence[Hashable], mask: Tensor) -> Tensor: ...

| `compares` | called with | returns |
|---|---|---|
| `turns` | scores [B, K]: each turn's return; groups: B labels; mask [B, K]: 1 for turns that were played | [B, K] |
| `trajectories` | scores [B]: the first turn's return; groups: B labels; mask [B, K] | [B, K] |
| `nothing` | rewards [B, T]: each turn's score at its last token; mask [B, T]; the update's settings | [B, T] |

B counts trajectories, or responses where nothing is compared, K turns, T response tokens; tensors are float64. With
`critic=True`, for an estimator that compares nothing, values [B, T] of a critic are the fourth argument, and what it
returns is (advantages [B, T], targets of the values [B, T]). Importing an estimator of ours does not import torch: the
driver asks what it compares.
"""
