"""Embedded engine: a Hugging Face model in the rollout worker's process."""
