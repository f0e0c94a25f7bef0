"""kernels_eval: judges GPU kernels. Stand-alone: knows nothing of Prefect, Ray, or the rest of kernelmill."""
