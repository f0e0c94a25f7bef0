"""Experiment tracking with Weights & Biases."""
