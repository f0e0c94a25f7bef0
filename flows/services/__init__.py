"""Services of a run: the Prefect server with its deployments, Ray, and GPUs."""
