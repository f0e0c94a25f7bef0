"""Trajectory data set: two flat Parquet tables (`schema`, `writer`, `reader`), and their `returns`."""
