"""Timing: rounds until the fastest agree, the reference's time, and the phases of a verdict."""
