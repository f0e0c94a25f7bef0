"""The SGLang engine: servers over HTTP, their weights, and the canary that compares both."""
