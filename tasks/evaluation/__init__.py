"""Held-out evaluation, its statistics, and the report."""
