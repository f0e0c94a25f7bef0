"""The verdict cache: keyed by all that decides a verdict and nothing else; never keeps a fault; survives damage."""

from pathlib import Path

import pytest

from kernels_eval.config import JudgeConfig
from kernels_eval.pool.verdict_cache import VerdictCache, verdict_key
from kernels_eval.problem import Problem
from kernels_eval.verdict import Status, Verdict

PROBLEM = Problem(problem_id="a", source="x = 1\n")
KEY = verdict_key(PROBLEM, "kernel", JudgeConfig())
VERDICT = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=1.5)


@pytest.mark.parametrize(
    "change", [{"workers": 7}, {"cache_dir": "elsewhere"}, {"cache_mb": 128}, {"require_sandbox": True}]
)
def test_what_does_not_matter(change: dict[str, object]) -> None:
    assert verdict_key(PROBLEM, "kernel", JudgeConfig().model_copy(update=change)) == KEY
    assert verdict_key(Problem(problem_id="b", source="# why\nx  =  1"), "kernel", JudgeConfig()) == KEY


@pytest.mark.parametrize("change", [{"trials": 3}, {"targets": ()}, {"timeout_s": 1.0}, {"policy": "mixed"}])
def test_what_matters(change: dict[str, object]) -> None:
    assert verdict_key(PROBLEM, "kernel", JudgeConfig().model_copy(update=change)) != KEY
    assert verdict_key(PROBLEM, "kernel ", JudgeConfig()) != KEY
    assert verdict_key(Problem(problem_id="a", source="x = 2\n"), "kernel", JudgeConfig()) != KEY


@pytest.mark.parametrize("on_disk", [True, False])
def test_kept_and_found(tmp_path: Path, on_disk: bool) -> None:
    cache = VerdictCache(tmp_path if on_disk else None)
    assert cache.get(KEY) is None
    cache.put(KEY, VERDICT)
    assert cache.get(KEY) == VERDICT
    assert VerdictCache(tmp_path).get(KEY) == (VERDICT if on_disk else None)


def test_faults_are_not_kept(tmp_path: Path) -> None:
    cache = VerdictCache(tmp_path)
    cache.put(KEY, Verdict(status=Status.INFRASTRUCTURE_ERROR))
    assert cache.get(KEY) is None
    assert not list(tmp_path.rglob("*"))


@pytest.mark.parametrize("damage", ["", "{", '{"status": "wonderful"}', "\x00" * 50])
def test_a_damaged_file_is_no_verdict(tmp_path: Path, damage: str) -> None:
    VerdictCache(tmp_path).put(KEY, VERDICT)
    (file,) = tmp_path.rglob("*.json")
    file.write_text(damage)
    assert VerdictCache(tmp_path).get(KEY) is None


def test_a_folder_that_cannot_be_written_costs_only_the_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    cache = VerdictCache(tmp_path / "file")
    cache.put(KEY, VERDICT)
    assert cache.get(KEY) == VERDICT


def test_memory_is_bounded_and_what_was_asked_for_last_stays() -> None:
    cache = VerdictCache(None, max_mb=0.1)
    cache.put("asked for", VERDICT)
    for index in range(200):
        cache.put(str(index), VERDICT)
        cache.put(str(index), VERDICT)
        assert cache.get("asked for") is VERDICT
    assert 20 < len(cache) < 60
    assert cache.get("199") is VERDICT
    assert cache.get("0") is None
    cache.put("long", VERDICT.model_copy(update={"error_message": "x" * 90_000}))
    assert cache.get("long") is not None
    assert len(cache) < 10


def test_another_triton_is_another_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from kernels_eval.pool import verdict_cache as cache

    problem, config = Problem(problem_id="p", source="x = 1"), JudgeConfig()
    keys: set[str] = set()
    for found in ("3.7.1", "3.9.0"):
        monkeypatch.setattr(cache, "version", lambda name, found=found: found if name == "triton" else "1")
        cache._library_versions.cache_clear()  # pyright: ignore[reportPrivateUsage]
        keys.add(cache.verdict_key(problem, "kernel", config))
    cache._library_versions.cache_clear()  # pyright: ignore[reportPrivateUsage]
    assert len(keys) == 2
