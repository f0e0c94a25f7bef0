"""The report of a run: one self-contained `report.html` (no script, no request to anywhere).

`page` writes it (`write_report`), `tables` has headline and tables, `charts` draws, `examples` picks trajectories and
highlights source.
"""

from tasks.evaluation.report.page import write_report

__all__ = ["write_report"]
