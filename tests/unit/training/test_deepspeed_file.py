"""A user's DeepSpeed file may set what no setting of ours decides, and the ZeRO stage."""

import json
from pathlib import Path
from typing import Any

import pytest

from kernels_eval.errors import InputError
from tasks.training.deepspeed_file import RESERVED, read_deepspeed_file, stage_of


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
