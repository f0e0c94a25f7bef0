"""Formats of pairs of problem and kernel (`tasks.problems.pairs` loads them): one module each, a row to a pair."""
