"""Grading on a GPU, in the judge's worker: references, input sets, order of checks; rooms candidate, timing, device."""
