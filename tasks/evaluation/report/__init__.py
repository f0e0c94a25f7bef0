"""The report of a run: one self-contained `report.html` (no script, no request to anywhere).

`write_report(run_dir, inputs)` is in `page`; `charts` draws, `examples` picks trajectories, `words` says what the figures
mean, `code` shows source, `settings` lists the configuration.
"""

from tasks.evaluation.report.page import write_report

__all__ = ["write_report"]
