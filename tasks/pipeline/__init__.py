"""A stage as a cached, retryable Prefect task, and the artifact store that stages publish into."""
