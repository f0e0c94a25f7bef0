"""The report of a run: one self-contained `report.html` (no script, no request to anywhere).

`page` writes it, `headline` is its first sentence, `tables` its tables, `charts` draws, `examples` picks
trajectories, `source` colours code.
"""
