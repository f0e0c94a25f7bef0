"""The candidate's process: its program, its limits, and the judge's side of the session with it."""
