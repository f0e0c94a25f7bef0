"""Files that are split keep schema, order and metadata."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.pipeline.store import read_manifest
from tasks.validation.quarantine import split_file, write_quarantine


def test_a_file_is_split_with_its_schema_and_metadata(tmp_path: Path):
    schema = pa.schema([("id", pa.string()), ("x", pa.int32())], metadata={b"version": b"3"})
    source = tmp_path / "table.parquet"
    pq.write_table(pa.table({"id": ["a", "b", "c"], "x": [1, 2, 3]}, schema=schema), source)
    assert split_file(source, "id", {"b": "too small"}, tmp_path / "kept", tmp_path / "taken") == (2, 1)
    kept, taken = pq.read_table(tmp_path / "kept"), pq.read_table(tmp_path / "taken")
    assert kept.schema.equals(schema, check_metadata=True)
    assert kept["id"].to_pylist() == ["a", "c"]
    assert taken.to_pylist() == [{"id": "b", "x": 2, "reason": "too small"}]
    write_quarantine(tmp_path / "quarantine", [source], "id", {"b": "too small"}, "origin")
    assert pq.read_table(tmp_path / "quarantine" / "table.parquet").equals(taken)
    manifest = read_manifest(tmp_path / "quarantine")
    assert manifest is not None
    assert manifest["metadata"] == {"origin": "origin", "id": 1}
