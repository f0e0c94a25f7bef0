"""GPU requirements of a run, estimated before it starts: memory, speed, and the fit. Formulas name their sources."""
