"""Confined processes: fork server, resource limits, seccomp, landlock, and the messages to and from them."""
