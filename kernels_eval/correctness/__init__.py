"""Tolerance, allowed operators, the structure of outputs, and what constructors make of weights."""
