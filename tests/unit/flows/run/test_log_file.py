"""The run's log file: one that cannot be written costs its records, and no traceback each."""

import logging
from pathlib import Path

import pytest

from flows.run.log_file import logged_to


def test_records_are_appended_while_the_block_runs(tmp_path: Path) -> None:
    logger = logging.getLogger("of a run")
    logger.setLevel(logging.INFO)
    for words in ("one", "two"):
        with logged_to(tmp_path / "log.txt"):
            logger.info(words)
        logger.info("not in it")
    assert [line.split()[-1] for line in (tmp_path / "log.txt").read_text().splitlines()] == ["one", "two"]


def test_a_full_disk_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("of a full disk")
    logger.propagate = True
    with logged_to(Path("/dev/full")):
        logger.error("lost")
    assert "Traceback" not in capsys.readouterr().err
