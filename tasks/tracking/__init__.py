"""Figures of a run while it goes on: its own record, and Weights & Biases."""
