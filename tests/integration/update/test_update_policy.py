"""The update on real ranks: exact, the same warm and cold, the same on one rank and on two, safe against bad input and death."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.verdict import Status, Verdict
from tasks.cluster.workers import stop_workers
from tasks.pipeline import digests
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef, silent
from tasks.pipeline.store import MANIFEST, is_available, read_manifest
from tasks.training.program import RankContext
from tasks.trajectories.schema import TRAJECTORIES_FILE, TRAJECTORIES_SCHEMA, verdict_row
from tasks.update.config import UpdateConfig
from tasks.update.past import updates_without_state
from tasks.update.program import UpdateJob, update_program
from tests.integration.update.requested import update_policy

MakePolicy = Callable[..., CheckpointRef]
MakeBatch = Callable[..., TrajectoryBatchRef]
BASE = UpdateConfig(optimizer_steps=2, threads_per_rank=1, learning_rate=1e-3, kl_coefficient=0.05)


def weights(checkpoint: CheckpointRef, file: str = "model.safetensors") -> dict[str, torch.Tensor]:
    return load_file(checkpoint.path / file)


def assert_equal(first: CheckpointRef, second: CheckpointRef, tolerance: float = 0.0) -> None:
    for file in ("model.safetensors", "optimizer/state.safetensors"):
        ours, theirs = weights(first, file), weights(second, file)
        assert ours.keys() == theirs.keys()
        for name in ours:
            torch.testing.assert_close(ours[name], theirs[name], atol=tolerance, rtol=0)


def told_of_curriculum(batch: TrajectoryBatchRef) -> None:
    """Say in the manifest what stage of a curriculum a batch is of; half of its trajectories end correct."""
    verdicts = [Verdict(status=status, correct=status is Status.CORRECT) for status in (Status.CORRECT, Status.TIMEOUT)]
    rows = [{"trajectory_id": verdict.status.value, "final_verdict": verdict_row(verdict)} for verdict in verdicts]
    pq.write_table(pa.Table.from_pylist(rows, schema=TRAJECTORIES_SCHEMA), batch.path / TRAJECTORIES_FILE)
    manifest = read_manifest(batch.path) or {}
    manifest["metadata"] = {"curriculum": {"turns": 2, "level": 1, "rates": [0.7]}}
    (batch.path / MANIFEST).write_text(json.dumps(manifest), encoding="utf-8")


def test_update_publishes_a_better_policy_with_metrics(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy = make_policy()
    batch = make_batch(policy)
    told_of_curriculum(batch)
    said: list[dict[str, Any]] = []
    after = update_policy(
        policy,
        policy,
        batch,
        BASE,
        0,
        3,
        7,
        tmp_path / "after",
        lambda done, total, **figures: said.append({"done": done, "total": total, **figures}),
    )
    assert after.weight_version == 1
    assert is_available(after)
    metadata = (read_manifest(after.path) or {})["metadata"]
    assert metadata["batch"] == batch.digest
    assert metadata["curriculum"] == {"turns": 2, "level": 1, "rates": [0.7], "success_rate": 0.5}
    assert AutoModelForCausalLM.from_pretrained(after.path).config.vocab_size == 300
    assert AutoTokenizer.from_pretrained(after.path).chat_template
    assert any(
        not torch.equal(new, old) for new, old in zip(weights(after).values(), weights(policy).values(), strict=True)
    )
    assert [entry["done"] for entry in said] == [1, 2]
    metrics = pl.read_parquet(after.path / "metrics.parquet")
    assert metrics["step"].to_list() == [0, 1]
    assert metrics.select(pl.all().is_finite().all()).row(0) == (True,) * metrics.width
    first = metrics.row(0, named=True)
    # The sampler decoded token by token with a cache, the trainer scores whole sequences: the same numbers all the same.
    assert first["mismatch_max_abs"] < 1e-5
    assert first["kl"] == pytest.approx(0, abs=1e-5)
    assert first["learning_rate"] == pytest.approx(1e-3)
    assert metrics["learning_rate"][1] < 1e-3


@pytest.mark.long
def test_warm_and_cold_paths_give_the_same_bits(tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch) -> None:
    policy = make_policy()
    first_batch, second_batch = make_batch(policy), make_batch(policy, "second", seed=1)
    first = update_policy(policy, policy, first_batch, BASE, 0, 2, 0, tmp_path / "first", silent)
    warm = update_policy(first, policy, second_batch, BASE, 1, 2, 0, tmp_path / "warm", silent)
    stop_workers()
    cold = update_policy(first, policy, second_batch, BASE, 1, 2, 0, tmp_path / "cold", silent)
    assert_equal(warm, cold)


def test_a_checkpoint_is_not_read_for_its_digests(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy()
    batch = make_batch(policy)
    read: list[str] = []
    original = digests.file_digest
    monkeypatch.setattr(digests, "file_digest", lambda file: (read.append(file.name), original(file))[1])
    after = update_policy(policy, policy, batch, BASE, 0, 2, 0, tmp_path / "after", silent)
    assert "metrics.parquet" in read
    assert not [name for name in read if name.endswith(".safetensors")], "the rank hashed what it wrote"
    manifest = read_manifest(after.path)
    assert manifest is not None
    for name in ("model.safetensors", "optimizer/state.safetensors"):
        assert manifest["files"][name] == hashlib.sha256((after.path / name).read_bytes()).hexdigest()[:32]


@pytest.mark.long
def test_a_state_that_was_not_written_is_made_again_to_the_same_bits(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch, caplog: pytest.LogCaptureFixture
) -> None:
    policies = {0: make_policy()}
    batches = {number: make_batch(policies[0], f"batch-{number}", seed=number) for number in range(3)}

    def updated(number: int, name: str, writes_state: bool) -> CheckpointRef:
        past = updates_without_state(policies[number], policies, batches)
        return update_policy(
            policies[number], policies[0], batches[number], BASE, number, 3, 0, tmp_path / name, silent,
            writes_state=writes_state, past=past,
        )  # fmt: skip

    for number, name in enumerate(["first", "second"]):
        policies[number + 1] = updated(number, name, writes_state=False)
        assert not (policies[number + 1].path / "optimizer").exists()
    assert [update.policy.weight_version for update in updates_without_state(policies[2], policies, batches)] == [0, 1]
    warm = updated(2, "warm", writes_state=True)
    assert "made again" not in caplog.text
    stop_workers()
    cold = updated(2, "cold", writes_state=True)
    assert caplog.text.count("is made again") == 2
    assert "the first time" not in caplog.text
    assert_equal(warm, cold)
    assert updates_without_state(warm, policies, batches) == ()
    stop_workers()
    with pytest.raises(InputError, match=r"has no optimizer's state, .* a multiple of update.checkpoint_interval"):
        update_policy(policies[2], policies[0], batches[2], BASE, 2, 3, 0, tmp_path / "lost", silent)
    gone = batches[1].path
    shutil.rmtree(gone)
    with pytest.raises(
        InputError, match=f"{re.escape(str(gone))}: gone or without weights, expected what update 1 was made of"
    ):
        updated(2, "lost", writes_state=True)
    assert not (tmp_path / "lost").exists()


@pytest.mark.long
def test_without_the_optimizers_state_each_update_begins_with_a_new_one(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy = make_policy()
    first_batch, second_batch = make_batch(policy), make_batch(policy, "second", seed=1)
    config = BASE.model_copy(update={"optimizer_state": False})
    first = update_policy(policy, policy, first_batch, config, 0, 2, 0, tmp_path / "first", silent)
    assert not (first.path / "optimizer").exists()
    ranks = [each for each in psutil.Process().children(recursive=True) if each.name().startswith("ray::Rank")]
    assert not psutil.wait_procs(ranks, timeout=20)[1]  # they are being ended
    warm = update_policy(first, policy, second_batch, config, 1, 2, 0, tmp_path / "warm", silent)
    stop_workers()
    cold = update_policy(first, policy, second_batch, config, 1, 2, 0, tmp_path / "cold", silent)
    for name, weight in weights(warm).items():
        assert torch.equal(weight, weights(cold)[name])


def test_a_held_engine_is_not_taken_for_another_policy(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy = make_policy()
    batch = make_batch(policy)
    once = update_policy(policy, policy, batch, BASE, 0, 2, 0, tmp_path / "once", silent)
    again = update_policy(policy, policy, batch, BASE, 0, 2, 0, tmp_path / "again", silent)
    assert_equal(once, again)


GENTLE = BASE.model_copy(update={"learning_rate": 1e-4})


@pytest.fixture(scope="module")
def shared_batch(
    shared_policy: CheckpointRef, turns: Callable[..., Any], publish_turns: MakeBatch
) -> TrajectoryBatchRef:
    return publish_turns(shared_policy.path.parent / "batch", turns(shared_policy))


@pytest.fixture(scope="module")
def plain(shared_policy: CheckpointRef, shared_batch: TrajectoryBatchRef) -> CheckpointRef:
    """Policy after an update on one rank."""
    place = shared_policy.path.parent / "plain"
    return update_policy(shared_policy, shared_policy, shared_batch, GENTLE, 0, 1, 0, place, silent)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"zero_stage": 0}, marks=pytest.mark.slow),
        {"ranks": 2, "zero_stage": 3},
        {"ranks": 2, "context_parallel": 2},
        pytest.param({"tokens_per_rank": 64}, marks=pytest.mark.slow),
    ],
)
@pytest.mark.long
def test_neither_ranks_nor_stages_nor_micro_batches_change_the_result(
    tmp_path: Path,
    shared_policy: CheckpointRef,
    shared_batch: TrajectoryBatchRef,
    plain: CheckpointRef,
    change: dict[str, Any],
) -> None:
    settings = GENTLE.model_copy(update=change)
    other = update_policy(shared_policy, shared_policy, shared_batch, settings, 0, 1, 0, tmp_path / "other", silent)
    # Moments are compared, not weights: AdamW's first step is ±rate for every weight, also where its gradient is noise.
    ours, theirs = (pl.read_parquet(ref.path / "metrics.parquet") for ref in (plain, other))
    for column in ("loss", "policy_loss", "kl", "entropy", "gradient_norm", "clip_fraction"):
        np.testing.assert_allclose(ours[column], theirs[column], atol=1e-6, rtol=1e-5, err_msg=column)
    for name, moment in weights(plain, "optimizer/state.safetensors").items():
        torch.testing.assert_close(weights(other, "optimizer/state.safetensors")[name], moment, atol=1e-6, rtol=1e-4)


@pytest.mark.slow
def test_optimizer_state_moves_between_stages_and_ranks(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy = make_policy()
    first_batch, second_batch = make_batch(policy), make_batch(policy, "second", seed=1)
    first = update_policy(policy, policy, first_batch, BASE, 0, 2, 0, tmp_path / "first", silent)
    straight = update_policy(first, policy, second_batch, BASE, 1, 2, 0, tmp_path / "straight", silent)
    elsewhere = BASE.model_copy(update={"ranks": 2, "zero_stage": 3})
    moved = update_policy(first, policy, second_batch, elsewhere, 1, 2, 0, tmp_path / "moved", silent)
    ours, theirs = (weights(ref, "optimizer/state.safetensors") for ref in (straight, moved))
    for name, moment in ours.items():
        torch.testing.assert_close(theirs[name], moment, atol=1e-6, rtol=1e-3)


@pytest.mark.long
def test_a_killed_rank_leaves_the_last_checkpoint_and_the_next_update_works(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy = make_policy()
    batch = make_batch(policy)

    def kill(done: int, total: int, **figures: float) -> None:
        if done == 1:
            for process in psutil.Process().children(recursive=True):
                if process.name().startswith("ray::Rank"):
                    process.kill()

    with pytest.raises(InfrastructureError, match="rank died"):
        update_policy(policy, policy, batch, BASE, 0, 1, 0, tmp_path / "killed", kill)
    assert not (tmp_path / "killed").exists()
    assert is_available(policy)
    update_policy(policy, policy, batch, BASE, 0, 1, 0, tmp_path / "killed", silent)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_killed_update_goes_on_with_other_numbers_of_ranks(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch
) -> None:
    policy = make_policy()
    batch = make_batch(policy, groups=8)
    settings = BASE.model_copy(update={"optimizer_steps": 5, "save_interval": 1, "learning_rate": 1e-4})
    whole = update_policy(policy, policy, batch, settings, 0, 1, 0, tmp_path / "whole", silent)
    places = (
        {"ranks": 1, "tokens_per_rank": 4096},
        {"ranks": 2, "tokens_per_rank": 64, "zero_stage": 1},
        {"ranks": 4, "tokens_per_rank": 128, "zero_stage": 3},
        {"ranks": 2, "tokens_per_rank": 96, "context_parallel": 2},
        {"ranks": 1, "tokens_per_rank": 2048, "zero_stage": 0},
    )
    said: list[int] = []

    def interrupt_after_a_step(done: int, total: int, **figures: float) -> None:
        said.append(done)
        if done < total:
            raise KeyboardInterrupt

    def go_on(change: dict[str, Any]) -> CheckpointRef:
        elsewhere = settings.model_copy(update=change)
        return update_policy(
            policy, policy, batch, elsewhere, 0, 1, 0, tmp_path / "after", interrupt_after_a_step, tmp_path / "work"
        )

    for change in places[:-1]:
        with pytest.raises(KeyboardInterrupt):
            go_on(change)
    after = go_on(places[-1])
    assert said == [1, 2, 3, 4, 5]
    ours, theirs = (pl.read_parquet(ref.path / "metrics.parquet") for ref in (whole, after))
    assert theirs["token_budget"].to_list() == [change["tokens_per_rank"] for change in places]
    for column in ("loss", "kl", "gradient_norm"):
        np.testing.assert_allclose(ours[column], theirs[column], atol=1e-5, err_msg=column)


@pytest.mark.long
def test_out_of_memory_halves_the_token_budget_once_and_goes_on(
    tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short_of_memory(rank: RankContext, job: UpdateJob) -> Iterator[dict[str, Any]]:
        for said in update_program(rank, job):
            yield said
            if job.config.tokens_per_rank > 4096:
                torch.empty(2**55, dtype=torch.uint8)

    policy = make_policy()
    batch = make_batch(policy)
    said: list[dict[str, Any]] = []
    settings = BASE.model_copy(update={"save_interval": 1})
    monkeypatch.setattr("tasks.update.train.update_program", short_of_memory)
    after = update_policy(
        policy,
        policy,
        batch,
        settings,
        0,
        1,
        0,
        tmp_path / "after",
        lambda done, total, **figures: said.append({"done": done, **figures}),
        tmp_path / "work",
    )
    # What the first step has done is not done again: the second try goes on from the interim checkpoint.
    assert [entry["done"] for entry in said] == [1, 0, 2]
    assert said[1]["token_budget"] == 4096
    assert pl.read_parquet(after.path / "metrics.parquet")["token_budget"].to_list() == [8192, 4096]


def test_bad_input_is_one_clear_sentence_and_writes_nothing(
    tmp_path: Path, make_policy: MakePolicy, turns: Callable[..., Any], publish_rows: Callable[..., Any]
) -> None:
    policy = make_policy()
    rows = turns(policy, groups=2, samples=2)
    destination = tmp_path / "never"
    with pytest.raises(InputError, match=r"another architecture.*hidden_size: found 64, expected 32"):
        update_policy(policy, make_policy("wide", hidden=64), publish_rows(rows), BASE, 0, 1, 0, destination, silent)
    with pytest.raises(InputError, match=r"kl_coefficient: above 0, but no reference"):
        update_policy(policy, None, publish_rows(rows, "b"), BASE, 0, 1, 0, destination, silent)
    rows[0]["response_token_ids"] = [*rows[0]["response_token_ids"][:-1], 300]
    with pytest.raises(InputError, match=r"turns.response_token_ids: 1 of 4 .* expected token ids from 0 to 299"):
        update_policy(policy, policy, publish_rows(rows, "c"), BASE, 0, 1, 0, destination, silent)
    missing = CheckpointRef(uri=str(tmp_path / "nowhere"), digest="0")
    with pytest.raises(InputError, match=r"nowhere.config.json: expected the configuration"):
        update_policy(missing, missing, publish_rows(rows, "d"), BASE, 0, 1, 0, destination, silent)
    assert not destination.exists()


def test_a_broken_optimizer_file_is_named(tmp_path: Path, make_policy: MakePolicy, make_batch: MakeBatch) -> None:
    policy = make_policy()
    (policy.path / "optimizer").mkdir()
    (policy.path / "optimizer/state.safetensors").write_bytes(b"\x00" * 64)
    with pytest.raises(InputError, match=r"optimizer/state.safetensors: expected the optimizer state"):
        update_policy(policy, policy, make_batch(policy), BASE, 0, 1, 0, tmp_path / "never", silent)
    assert not (tmp_path / "never").exists()
