"""Rollouts: episodes in which the policy writes kernels and is told what the judge said."""
