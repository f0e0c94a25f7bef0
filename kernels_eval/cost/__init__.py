"""Counted launches and operators, and the roofline estimate made of them."""
