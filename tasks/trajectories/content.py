"""Content digest of tables with verdicts: of what a run is, without what was measured while it was made.

Left out are the seconds and times of turns, the fields of verdicts that depend on secret draws
(kernels_eval.verdict.MEASURED), and the id of the run: equal seeds on equal machines give equal digests. Whatever a
later stage computes with counts: tokens, log-probabilities, statuses, rewards, speedups.
"""

import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from kernels_eval.verdict import MEASURED
from tasks.pipeline.store import Contents
from tasks.trajectories.schema import TRAJECTORIES_FILE, TURNS_FILE

_NOT_CONTENT = {
    *("run_id", "created_at", "generation_s", "evaluation_s"),
    *(f"{verdict}.{name}" for verdict in ("verdict", "final_verdict") for name in MEASURED),
}


def table_digest(file: Path) -> str:
    """Return 32 hex digits for the rows of a Parquet file in their order, without its measured columns."""
    table = pq.ParquetFile(file).read().flatten()
    content = table.drop_columns([name for name in table.column_names if name in _NOT_CONTENT]).combine_chunks()
    written = pa.BufferOutputStream()
    # Parquet writes values alone: bytes behind nulls and the layout of chunks do not count.
    pq.write_table(content, written, compression="none")
    return hashlib.sha256(written.getvalue()).hexdigest()[:32]


TABLES: Contents = {TRAJECTORIES_FILE: table_digest, TURNS_FILE: table_digest}
"""The tables of a trajectory data set."""
