"""The stages: plain functions, each with a thin module of Prefect tasks."""
