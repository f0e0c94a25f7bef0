"""What a run talks to or leaves running: the Prefect server, Ray, deployments, alerts, GPU slots."""
