"""Tolerance, allowed operators, the structure of outputs, what constructors make of weights."""
