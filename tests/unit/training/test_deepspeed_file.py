"""A user's DeepSpeed file may set what no setting of ours decides, and the ZeRO stage."""

import json
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.errors import InputError
from tasks.training.deepspeed_file import RESERVED, read_deepspeed_file, stage_of, stage_on


def written(folder: Path, content: Any) -> str:
    file = folder / "ds.json"
    file.write_text(json.dumps(content))
    return str(file)


@pytest.mark.parametrize("key", sorted(RESERVED))
def test_keys_that_a_setting_decides_are_refused_with_its_name(tmp_path: Path, key: str) -> None:
    with pytest.raises(InputError, match=rf"{key} is not the file's to set; set {RESERVED[key]} instead"):
        read_deepspeed_file(written(tmp_path, {key: 1}))


def test_the_files_stage_holds_if_it_has_one(tmp_path: Path) -> None:
    assert stage_of(None, 2) == 2
    assert stage_of(written(tmp_path, {"comms_logger": {}}), 2) == 2
    assert stage_of(written(tmp_path, {"zero_optimization": {"stage": 3}}), 2) == 3


@pytest.mark.parametrize("given", [[], {"stage": 4}, {"stage": "3"}])
def test_a_stage_that_is_none_is_refused(tmp_path: Path, given: Any) -> None:
    with pytest.raises(InputError, match="zero_optimization"):
        stage_of(written(tmp_path, {"zero_optimization": given}), 0)


@pytest.mark.parametrize(("ranks", "stage", "found"), [(1, 3, 2), (1, 0, 0), (1, 2, 2), (2, 3, 3), (4, 1, 1)])
def test_one_rank_alone_does_not_part_its_weights(ranks: int, stage: int, found: int) -> None:
    assert stage_on(ranks, None, stage) == found


def test_the_stage_of_a_file_is_kept_on_one_rank(tmp_path: Path) -> None:
    file = tmp_path / "deepspeed.json"
    file.write_text('{"zero_optimization": {"stage": 3}}')
    assert stage_on(1, str(file), 0) == 3
    file.write_text("{}")
    assert stage_on(1, str(file), 3) == 3
