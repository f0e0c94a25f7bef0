"""Learning rates by optimizer step: linear warm-up, then constant or a cosine down to a share of the peak."""

import math


def learning_rate(
    step: int, total_steps: int, peak: float, *, warmup_steps: int = 0, final_fraction: float = 1.0
) -> float:
    """Return the rate of step 0 … total_steps − 1. `final_fraction` of the peak is reached at the last step; 1 keeps it constant."""
    if step < warmup_steps:
        return peak * (step + 1) / (warmup_steps + 1)
    done = (step - warmup_steps) / max(total_steps - 1 - warmup_steps, 1)
    cosine = 0.5 * (1 + math.cos(math.pi * min(done, 1.0)))
    return peak * (final_fraction + (1 - final_fraction) * cosine)
