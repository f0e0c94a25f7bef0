"""SGLang engine: servers over HTTP, their weights, and the canary that compares them with the checkpoint."""
