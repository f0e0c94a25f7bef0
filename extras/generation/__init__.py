"""Kernels on demand: a PyTorch module in, a verified kernel out.

`search` runs conversations between a `writers` model and the judge within a budget, `generate` verifies the best kernel
once more and makes the file, `service` is the same over HTTP with a queue, `optimize` a decorator for modules.
"""
