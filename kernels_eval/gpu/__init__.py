"""Grading on a GPU: worker process, candidate's process, shared device memory, rounds, timing, profile."""
