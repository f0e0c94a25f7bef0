"""Whatever is wrong with what an update is given: one clear error, nothing is published, and the last checkpoint trains on as if nothing had been."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from safetensors.torch import load_file, save_file

from kernels_eval.errors import InputError
from tasks.pipeline.integrity import OPTIMIZER_FILES
from tasks.pipeline.references import CheckpointRef, TrajectoryBatchRef, silent
from tasks.pipeline.store import discard, is_available, publish
from tasks.training.config import LoraConfig
from tasks.training.retention import WEIGHT_FILES
from tasks.update.config import CriticConfig, UpdateConfig
from tests.integration.update.requested import update_policy

Row = dict[str, Any]
MakePolicy = Callable[..., CheckpointRef]
BASE = UpdateConfig(credit="return", optimizer_steps=1, threads_per_rank=1, kl_coefficient=0.0, learning_rate=1e-3)


def set_first(column: str, value: Any) -> Callable[[list[Row]], None]:
    def spoil(rows: list[Row]) -> None:
        rows[0][column] = value(rows[0][column]) if callable(value) else value

    return spoil


def set_all(column: str, value: Any) -> Callable[[list[Row]], None]:
    def spoil(rows: list[Row]) -> None:
        for row in rows:
            row[column] = value

    return spoil


TURNS: dict[str, tuple[Callable[[list[Row]], Any], str]] = {
    "nan-reward": (set_first("reward", float("nan")), r"turns.reward: 1 of 8 turns are wrong: expected a finite number, found nan"),
    "nan-return": (set_first("return", float("nan")), r"turns.return: 1 of 8 .* expected a finite number, found nan"),
    "infinite-return": (set_first("return", float("inf")), r"turns.return: 1 of 8 .* expected a finite number, found inf"),
    "nothing-judged": (
        set_all("verdict", {"status": "infrastructure_error"}),
        r"turns: expected at least one turn that the judge could evaluate, found none",
    ),
    "no-variance": (set_all("return", 1.0), r"nothing to learn from: of 2 groups 0 have one sample and 2 have equal returns"),
    "more-log-probs-than-tokens": (
        set_first("response_logprobs", lambda found: [*found, -1.0]),
        r"turns.response_logprobs: 1 of 8 .* expected as many entries as response_token_ids",
    ),
    "positive-log-prob": (
        set_first("response_logprobs", lambda found: [0.5, *found[1:]]),
        r"turns.response_logprobs: 1 of 8 .* expected log-probabilities of at most 0",
    ),
    "nan-log-prob": (
        set_first("response_logprobs", lambda found: [float("nan"), *found[1:]]),
        r"turns.response_logprobs: 1 of 8 .* expected finite numbers",
    ),
    "unknown-token": (set_first("prompt_token_ids", [1, 300]), r"turns.prompt_token_ids: .* token ids from 0 to 299"),
    "empty-prompt": (set_first("prompt_token_ids", []), r"turns.prompt_token_ids: .* expected at least one token"),
    "empty-response": (
        lambda rows: rows[0].update(response_token_ids=[], response_logprobs=[]),
        r"turns.response_token_ids: 1 of 8 .* expected at least one token",
    ),
}  # fmt: skip


def change_tensors(path: Path, change: Callable[[torch.Tensor], torch.Tensor], part: str = "") -> None:
    tensors = load_file(path)
    first = next(name for name in sorted(tensors) if part in name)
    save_file({**tensors, first: change(tensors[first])}, path, metadata={"format": "pt", "steps": "1"})


def narrower(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[..., :-1].contiguous()


def with_nan(tensor: torch.Tensor) -> torch.Tensor:
    return torch.full_like(tensor, float("nan"))


@pytest.fixture
def copy_of(tmp_path: Path) -> Callable[[CheckpointRef, str], CheckpointRef]:
    """A function that copies a checkpoint, to be spoilt."""

    def copied(policy: CheckpointRef, name: str) -> CheckpointRef:
        shutil.copytree(policy.path, tmp_path / name)
        return CheckpointRef(uri=str(tmp_path / name), digest=name)

    return copied


class Refusals:
    """Asks for updates that cannot be, and sees that each is refused with one line and leaves nothing behind."""

    def __init__(self, folder: Path, policy: CheckpointRef, batch: TrajectoryBatchRef) -> None:
        self.destination = folder / "never"
        self.policy, self.batch = policy, batch

    def __call__(
        self, words: str, policy: CheckpointRef | None = None, batch: TrajectoryBatchRef | None = None, **change: Any
    ) -> None:
        config = BASE.model_copy(update=change)
        with pytest.raises(InputError, match=words) as raised:
            update_policy(policy or self.policy, None, batch or self.batch, config, 1, 3, 0, self.destination, silent)
        assert "\n" not in str(raised.value)
        assert not list(self.destination.parent.glob("*")), "not even half a folder"


@pytest.fixture
def rows(make_policy: MakePolicy, turns: Callable[..., list[Row]]) -> list[Row]:
    return turns(make_policy("sampler"), groups=2, samples=4)


def test_bad_turns_and_settings_are_found_before_a_worker_starts(
    tmp_path: Path, make_policy: MakePolicy, rows: list[Row], publish_rows: Callable[..., TrajectoryBatchRef]
) -> None:
    policy, good = make_policy(), publish_rows(rows, "good")
    refused = Refusals(tmp_path / "out", policy, good)
    for name, (spoil, words) in TURNS.items():
        spoilt = [dict(row) for row in rows]
        spoil(spoilt)
        refused(words, batch=publish_rows(spoilt, name))

    thinned = make_policy("thinned")
    with publish(tmp_path / "thinned-policy") as folder:
        shutil.copytree(thinned.path, folder, dirs_exist_ok=True)
        (folder / "optimizer").mkdir(exist_ok=True)
        (folder / "optimizer" / "state.safetensors").write_text("x")
    discard(tmp_path / "thinned-policy", OPTIMIZER_FILES)
    refused(
        r"thinned-policy: this policy has no optimizer's state",
        policy=thinned.model_copy(update={"uri": str(tmp_path / "thinned-policy")}),
    )

    with publish(tmp_path / "unweighted-policy") as folder:
        shutil.copytree(thinned.path, folder, dirs_exist_ok=True)
    discard(tmp_path / "unweighted-policy", WEIGHT_FILES)
    refused(
        r"unweighted-policy: the weights of this policy were removed",
        policy=thinned.model_copy(update={"uri": str(tmp_path / "unweighted-policy")}),
    )

    def replaced(name: str, table: pl.DataFrame) -> TrajectoryBatchRef:
        batch = publish_rows(rows, name)
        table.write_parquet(batch.path / "turns.parquet")
        return batch

    stored = pl.read_parquet(good.path / "turns.parquet")
    refused(r"turns: expected at least one turn", batch=replaced("empty", stored.clear()))
    refused(r'turns.parquet: .*column "return"', batch=replaced("columns", stored.drop("return")))
    refused(r"nowhere.*found no file", batch=good.model_copy(update={"uri": str(tmp_path / "nowhere")}))
    refused(
        r"update.context_parallel: found 4, expected a divisor of the model's 2 attention heads", context_parallel=4
    )
    assert is_available(policy)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_what_only_a_rank_finds_out_leaves_the_last_checkpoint_usable(
    tmp_path: Path,
    make_policy: MakePolicy,
    rows: list[Row],
    publish_rows: Callable[..., TrajectoryBatchRef],
    copy_of: Callable[[CheckpointRef, str], CheckpointRef],
) -> None:
    start, good = make_policy(), publish_rows(rows, "good")
    last = update_policy(start, None, good, BASE, 0, 3, 0, tmp_path / "last", silent)
    undisturbed = update_policy(last, None, good, BASE, 1, 3, 0, tmp_path / "undisturbed", silent)
    refused = Refusals(tmp_path / "out", last, good)
    shape = copy_of(last, "shape")
    change_tensors(shape.path / "model.safetensors", narrower, "gate_proj")
    refused(r"shape: .*(of another shape|expected a Hugging Face causal language model)", shape)
    moments = copy_of(last, "moments")
    change_tensors(moments.path / "optimizer/state.safetensors", narrower)
    refused(r"moments/optimizer/state.safetensors: exp_avg/.*: found shape .* expected shape", moments)
    nothing = copy_of(last, "nan")
    change_tensors(nothing.path / "model.safetensors", with_nan, "norm")
    for stage in (0, 1, 2, 3):
        refused(r"gradients are not finite: the weights that training started from are not", nothing, zero_stage=stage)
    refused(r"update.deepspeed: /nowhere.json: cannot be read", deepspeed="/nowhere.json")
    refused(
        r"nowhere: expected a model that a critic can be made of",
        advantage="gae",
        critic=CriticConfig(pretrained=str(tmp_path / "nowhere")),
    )
    with_adapter = BASE.model_copy(update={"lora": LoraConfig(rank=2)})
    adapted = update_policy(start, None, good, with_adapter, 0, 3, 0, tmp_path / "adapted", silent)
    refused(r"update.lora: .*an adapter's shape stays as it began", adapted, lora=LoraConfig(rank=4))
    assert is_available(last)
    after_all = update_policy(last, None, good, BASE, 1, 3, 0, tmp_path / "after-all", silent)
    ours, theirs = (load_file(made.path / "model.safetensors") for made in (undisturbed, after_all))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
