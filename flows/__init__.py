"""Prefect flows: the order of things."""
