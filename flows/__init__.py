"""Prefect flows, one file each, and the rooms that they use: run, checks, services, capacity, settings, cli."""
