"""The typed configuration of a run, and its error messages."""
