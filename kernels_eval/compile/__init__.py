"""Machine code: Triton and CUDA sources compiled for named targets in confined one-shot processes."""
