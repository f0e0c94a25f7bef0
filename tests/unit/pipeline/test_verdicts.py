"""Verdicts that the runs of one folder share."""

from pathlib import Path

import pytest

from kernels_eval.config import JudgeConfig
from kernels_eval.pool.verdict_cache import VerdictCache
from kernels_eval.verdict import Status, Verdict, fault
from tasks.pipeline import verdicts
from tasks.pipeline.cache import decisive
from tasks.pipeline.store import find_garbage
from tasks.pipeline.verdicts import verdict_folder, with_kept_verdicts

CPU = JudgeConfig(device="cpu")


def test_runs_of_one_folder_share_verdicts_and_their_keys_do_not_change(tmp_path: Path):
    kept = with_kept_verdicts(CPU, tmp_path)
    assert kept.cache_dir == str(verdict_folder(tmp_path))
    assert with_kept_verdicts(CPU, tmp_path / "other").cache_dir != kept.cache_dir
    assert decisive(kept) == decisive(CPU)


def test_a_folder_that_is_set_stays(tmp_path: Path):
    own = CPU.model_copy(update={"cache_dir": "mine"})
    assert with_kept_verdicts(own, tmp_path).cache_dir == "mine"


@pytest.mark.parametrize("device", ["auto", "cuda"])
def test_measured_times_are_not_kept(device: str, tmp_path: Path):
    assert with_kept_verdicts(JudgeConfig.model_validate({"device": device}), tmp_path).cache_dir is None


def test_a_judge_of_other_code_has_a_folder_to_itself_and_gc_removes_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def cache() -> VerdictCache:
        return VerdictCache(Path(with_kept_verdicts(CPU, tmp_path).cache_dir or ""))

    cache().put("abc", Verdict(status=Status.CORRECT))
    cache().put("abd", fault("judge_fault", "the machine"))
    before = verdict_folder(tmp_path)
    assert cache().get("abc") == Verdict(status=Status.CORRECT)
    assert cache().get("abd") is None
    assert find_garbage(tmp_path, [], -60) == []
    monkeypatch.setattr(verdicts, "code_version", lambda _: "changed")
    assert cache().get("abc") is None
    assert [item.path for item in find_garbage(tmp_path, [], -60)] == [before]
    assert find_garbage(tmp_path, [], 3600) == []  # it is young
