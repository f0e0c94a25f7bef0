"""Sources in KernelBench's format, and files of every format that problems and pairs are loaded from."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PROBLEM = '''import torch
import torch.nn as nn

class Model(nn.Module):
    """{name}"""
    def __init__(self):
        super(Model, self).__init__()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.{name}(x)

batch_size = {rows}
dim = 16384

def get_inputs():
    x = torch.randn(batch_size, dim)
    return [x]

def get_init_inputs():
    return []  # No special initialization inputs needed
'''

NAMES = ("relu", "tanh", "sigmoid", "exp", "log", "abs", "sin", "cos", "sqrt", "erf", "neg", "floor", "ceil", "round")


@pytest.fixture(scope="session")
def problem_source() -> Callable[..., str]:
    """`problem_source("relu", rows=16)`: a problem as KernelBench writes them."""

    def source(name: str = "relu", rows: int = 16) -> str:
        return PROBLEM.format(name=name, rows=rows)

    return source


@pytest.fixture
def rows(problem_source: Callable[..., str]) -> list[dict[str, Any]]:
    """Rows with the columns and types of KernelBench's dataset."""
    return [
        {"code": problem_source(name), "level": 1, "name": f"{number}_{name}", "problem_id": number}
        for number, name in enumerate(NAMES, start=1)
    ]


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Sequence[dict[str, Any]]], Path]:
    """`write(format, rows)` returns the path of a file or folder in that format."""

    def written(kind: str, rows: Sequence[dict[str, Any]]) -> Path:
        if kind == "jsonl":
            path = tmp_path / "problems.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
            return path
        table = pa.Table.from_pylist(list(rows))
        if kind == "parquet":
            path = tmp_path / "problems.parquet"
            pq.write_table(table, path)
        elif kind == "saved":
            path = tmp_path / "saved"
            save_arrow(table, path)
        elif kind == "saved_dict":
            path = tmp_path / "saved_dict"
            half = len(rows) // 2
            save_arrow(table.slice(0, half), path / "level_1")
            save_arrow(table.slice(half), path / "level_2")
            (path / "dataset_dict.json").write_text('{"splits": ["level_1", "level_2"]}')
        elif kind == "snapshot":
            path = tmp_path / "snapshot"
            (path / "data").mkdir(parents=True)
            (path / "README.md").write_text("dataset card")
            half = len(rows) // 2
            pq.write_table(table.slice(0, half), path / "data" / "level_1-00000-of-00001.parquet")
            pq.write_table(table.slice(half), path / "data" / "level_2-00000-of-00001.parquet")
        else:
            raise ValueError(kind)
        return path

    return written


def save_arrow(table: Any, folder: Path) -> None:
    """Write what `datasets.Dataset.save_to_disk` writes: Arrow stream files, state.json, dataset_info.json."""
    folder.mkdir(parents=True)
    name = "data-00000-of-00001.arrow"
    with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    state = {"_data_files": [{"filename": name}], "_fingerprint": "0", "_format_type": None, "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
