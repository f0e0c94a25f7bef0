"""The candidate's process: what runs in it, its limits, and the judge's side of the session with it."""
