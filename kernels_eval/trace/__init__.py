"""The schema of a traced forward call, the only thing that leaves the candidate's process, and pure functions of it."""
