"""Schema of a traced forward call, the only thing that leaves the tracing process, and pure functions of it."""
