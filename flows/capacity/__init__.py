"""GPU requirements of a run, estimated before it starts: memory (`memory`), speed (`speed`), and the fit (`planner`).

Formulas name their sources; every assumption is a field that can be changed.
"""
