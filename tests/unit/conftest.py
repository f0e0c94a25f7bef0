"""Tokenizers with the chat templates of the model families that people train, and a run with made-up verdicts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from imported import import_file


@pytest.fixture(scope="session")
def family_tokenizer() -> Callable[[str], Any]:
    """Return the tokenizer of a file in tests/fixtures/chat_templates, by its name without the suffix."""
    return import_file(Path(__file__).parents[1] / "doubles" / "templated_tokenizer.py").fixture_tokenizer


@pytest.fixture(scope="session")
def invented_run() -> Callable[..., Path]:
    """`invented_run(runs_dir, weights=None, **changes)`: the folder of a run with made-up verdicts."""
    return import_file(Path(__file__).parents[1] / "doubles" / "invented_run.py").make_run


@pytest.fixture
def run_folder(invented_run: Callable[..., Path], tmp_path: Path) -> Path:
    """The folder of a run of two iterations, whose policy 1 was not evaluated."""
    return invented_run(tmp_path / "runs")
