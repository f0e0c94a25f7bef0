"""Rollouts: episodes in which the policy writes kernels and receives the judge's feedback."""
