"""Tolerance, allowed operators, and the structure of outputs."""
