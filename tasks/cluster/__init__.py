"""Ray: warm worker processes and their placement on nodes."""
