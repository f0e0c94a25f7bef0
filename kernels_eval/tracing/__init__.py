"""Tracing process: runs the candidate's host code on tensors without values."""
