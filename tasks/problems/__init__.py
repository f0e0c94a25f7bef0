"""The problem set: loaded or generated, split, checked for contamination, published."""
