"""Trajectory data set: two flat Parquet tables (`schema`, `writer`, `reader`), and the returns computed from them
(`returns`).
"""
