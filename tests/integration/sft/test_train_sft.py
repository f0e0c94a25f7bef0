"""SFT on a real rank: it learns, stops early, resumes to the bit after a kill, and refuses what does not fit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl
import psutil
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from kernels_eval.errors import InfrastructureError, InputError
from tasks.models.config import ModelConfig
from tasks.models.policy import architecture_of
from tasks.pipeline.references import CheckpointRef, SftDataRef, silent
from tasks.pipeline.store import is_available
from tasks.sft import train as train_module
from tasks.sft.config import SftConfig
from tasks.sft.program import SftJob, sft_program
from tasks.sft.train import train_sft
from tasks.sft.untrained import write_untrained
from tasks.training.checkpoint import OPTIMIZER_FILE
from tasks.training.config import EngineConfig, LoraConfig
from tasks.training.program import RankContext
from tasks.training.ranks import run_on_ranks

pytestmark = pytest.mark.long

MODEL = ModelConfig(vocabulary=320, hidden=32, intermediate=64, heads=2, key_value_heads=1, head_dim=16)
CONFIG = SftConfig(steps=60, batch_size=16, save_interval=20, warmup_steps=5, learning_rate=1e-2)
ENGINE = EngineConfig(threads_per_rank=1)


def assert_same_weights(first: CheckpointRef, second: CheckpointRef) -> None:
    ours, theirs = (load_file(reference.path / "model.safetensors") for reference in (first, second))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def kill_the_rank() -> None:
    for process in psutil.Process().children(recursive=True):
        if process.name().startswith("ray::Rank"):
            process.kill()


def test_learns_and_publishes_a_policy(tmp_path: Path, make_pairs: Callable[..., SftDataRef]) -> None:
    data = make_pairs()
    policy = train_sft(data, MODEL, CONFIG, ENGINE, 0, tmp_path / "sft", tmp_path / "work", silent)
    metrics = pl.read_parquet(policy.path / "metrics.parquet")
    assert metrics["step"].to_list() == list(range(60))
    assert metrics["loss"][-1] < 0.4 * metrics["loss"][0]
    assert metrics["validation_loss"].is_not_null().sum() == 3
    assert not (policy.path / "optimizer/state.safetensors").exists()
    model, tokenizer = AutoModelForCausalLM.from_pretrained(policy.path), AutoTokenizer.from_pretrained(policy.path)
    question = [{"role": "user", "content": "import torch\nx = torch.exp(x)\n"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**prompt, do_sample=False, max_new_tokens=40)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(answer).startswith("```python\nimport triton\nx = tl.")
    untrained = write_untrained(data.path, MODEL, tmp_path / "untrained")  # what a server may start with
    assert architecture_of(untrained) == architecture_of(policy.path)
    assert (untrained / "tokenizer.json").read_bytes() == (policy.path / "tokenizer.json").read_bytes()


def test_ranks_on_gpus_make_room_after_sft(
    tmp_path: Path, make_pairs: Callable[..., SftDataRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The RL update loads an engine of its own, and a process does not get rid of one."""

    def on_cpu(engine: EngineConfig, *arguments: Any) -> Iterator[Any]:
        return run_on_ranks(engine.model_copy(update={"gpus_per_rank": 0}), *arguments)

    ended: list[EngineConfig] = []
    monkeypatch.setattr(train_module, "run_on_ranks", on_cpu)
    monkeypatch.setattr(train_module, "make_room", ended.append)
    config = CONFIG.model_copy(update={"steps": 1})
    on_gpu = ENGINE.model_copy(update={"gpus_per_rank": 0.5})
    data = make_pairs()
    for number, engine in enumerate((ENGINE, on_gpu)):
        train_sft(data, MODEL, config, engine, 0, tmp_path / f"sft-{number}", tmp_path / f"work-{number}", silent)
    assert ended == [on_gpu]


@pytest.mark.parametrize("ranks", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_killed_run_resumes_to_the_bit(tmp_path: Path, make_pairs: Callable[..., SftDataRef], ranks: int) -> None:
    data = make_pairs()
    engine = ENGINE.model_copy(update={"ranks": ranks})
    straight = train_sft(data, MODEL, CONFIG, engine, 3, tmp_path / "straight", tmp_path / "work-0", silent)
    told: list[dict[str, Any]] = []

    def note(rows: Sequence[Mapping[str, Any]]) -> None:
        told.extend(dict(row) for row in rows)

    def kill(done: int, total: int, **figures: float) -> None:
        if (tmp_path / "work-1" / "step-00000020").exists():
            kill_the_rank()

    with pytest.raises(InfrastructureError, match="rank died"):
        train_sft(data, MODEL, CONFIG, engine, 3, tmp_path / "resumed", tmp_path / "work-1", kill, on_steps=note)
    assert [row["step"] for row in told] == list(range(len(told)))
    assert len(told) >= 20, "those of a training that was killed are there"
    told.clear()
    assert not (tmp_path / "resumed").exists()
    cut = tmp_path / "work-1" / "step-00000059" / "manifest.json"
    cut.parent.mkdir()
    cut.write_text('{"digest": "3')  # no checkpoint: what is gone on from lies before it
    resumed = train_sft(
        data, MODEL, CONFIG, engine, 3, tmp_path / "resumed", tmp_path / "work-1", silent, on_steps=note
    )
    assert_same_weights(straight, resumed)
    assert told == pl.read_parquet(resumed.path / "metrics.parquet").to_dicts()
    assert not cut.parent.exists()
    ours, theirs = (pl.read_parquet(reference.path / "metrics.parquet") for reference in (straight, resumed))
    exact = ["step", "epoch", "loss", "validation_loss", "gradient_norm", "learning_rate"]
    assert ours.select(exact).equals(theirs.select(exact))


def test_ranks_that_share_conversations_change_nothing(tmp_path: Path, make_pairs: Callable[..., SftDataRef]) -> None:
    data = make_pairs()
    few = CONFIG.model_copy(update={"steps": 4, "save_interval": 2, "learning_rate": 1e-4})
    found: list[pl.DataFrame] = []
    for number, change in enumerate(({}, {"ranks": 2, "context_parallel": 2, "tokens_per_rank": 64})):
        engine, work = ENGINE.model_copy(update=change), tmp_path / f"work-{number}"
        policy = train_sft(data, MODEL, few, engine, 3, tmp_path / f"sft-{number}", work, silent)
        found.append(pl.read_parquet(policy.path / "metrics.parquet"))
    for column in ("loss", "validation_loss", "gradient_norm", "trained_tokens"):
        apart = (found[0][column] - found[1][column]).abs().max()
        assert apart is not None
        assert float(apart) < 1e-5, column  # pyright: ignore[reportArgumentType]
    six = MODEL.model_copy(update={"heads": 6, "key_value_heads": 3})
    with pytest.raises(InputError, match="found 2, expected a divisor or a multiple of the model's 3 key-value heads"):
        train_sft(data, six, few, engine, 3, tmp_path / "never", tmp_path / "work", silent)


def test_stops_early_and_publishes_the_best_even_with_little_memory(
    tmp_path: Path, make_pairs: Callable[..., SftDataRef], monkeypatch: pytest.MonkeyPatch
) -> None:
    def short_of_memory(rank: RankContext, job: SftJob) -> Iterator[dict[str, Any]]:
        for said in sft_program(rank, job):
            if job.engine.tokens_per_rank > 4096 and said.get("done", 0) >= 10:
                torch.empty(2**55, dtype=torch.uint8)
            yield said

    monkeypatch.setattr("tasks.sft.train.sft_program", short_of_memory)
    said: list[dict[str, Any]] = []
    config = CONFIG.model_copy(
        update={"epochs": 40.0, "batch_size": 8, "save_interval": 5, "early_stop": 2, "validation_fraction": 0.4}
    )
    policy = train_sft(
        make_pairs(conversations=20),
        MODEL,
        config,
        ENGINE.model_copy(update={"keep_checkpoints": 1}),
        0,
        tmp_path / "sft",
        tmp_path / "work",
        lambda done, total, **figures: said.append({"done": done, "total": total, **figures}),
    )
    assert {"done": 0, "total": 1, "token_budget": 4096.0} in said
    metrics = pl.read_parquet(policy.path / "metrics.parquet")
    assert config.steps_for(12) == 60
    # Which steps come before and which after depends on when progress is told; the smaller budget never goes back to the larger one.
    assert metrics["token_budget"].unique(maintain_order=True).to_list() in ([8192, 4096], [8192])
    validated = metrics.filter(pl.col("validation_loss").is_not_null())
    losses = validated["validation_loss"].to_list()
    best = losses.index(min(losses))
    assert len(losses) == best + 3, losses
    assert metrics["step"].to_list() == list(range(validated["step"][-1] + 1))
    assert len(metrics) < 60
    kept = sorted(path.name for path in (tmp_path / "work").glob("step-*"))
    assert kept == [f"step-{validated['step'][place] + 1:08d}" for place in (best, best + 2)]
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (policy.path, tmp_path / "work" / kept[0]))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not (policy.path / OPTIMIZER_FILE).exists()
    assert AutoTokenizer.from_pretrained(policy.path).chat_template
    assert is_available(policy)


def test_adapters_are_merged_and_a_killed_run_resumes_to_the_bit(
    tmp_path: Path, make_pairs: Callable[..., SftDataRef]
) -> None:
    data = make_pairs()
    base = write_untrained(data.path, MODEL, tmp_path / "base")
    model = MODEL.model_copy(update={"pretrained": str(base)})
    config = CONFIG.model_copy(update={"steps": 12, "save_interval": 4, "lora": LoraConfig(rank=2)})
    straight = train_sft(data, model, config, ENGINE, 3, tmp_path / "straight", tmp_path / "work-0", silent)

    def kill(done: int, total: int, **figures: Any) -> None:
        if done > 5:
            kill_the_rank()

    with pytest.raises(InfrastructureError):
        train_sft(data, model, config, ENGINE, 3, tmp_path / "resumed", tmp_path / "work-1", kill)
    resumed = train_sft(data, model, config, ENGINE, 3, tmp_path / "resumed", tmp_path / "work-1", silent)
    assert_same_weights(straight, resumed)
    assert not (straight.path / "adapter").exists()
    before, after = (load_file(folder / "model.safetensors") for folder in (base, straight.path))
    changed = {name: after[name] - before[name] for name in before if not torch.equal(before[name], after[name])}
    assert changed
    assert all(name.endswith("proj.weight") and torch.linalg.matrix_rank(by) <= 2 for name, by in changed.items())


def test_goes_on_from_a_policy_and_refuses_one_of_another_shape(
    tmp_path: Path, make_pairs: Callable[..., SftDataRef]
) -> None:
    data = make_pairs()
    short = CONFIG.model_copy(update={"steps": 10, "warmup_steps": 0, "learning_rate": 1e-4})
    first = train_sft(data, MODEL, CONFIG, ENGINE, 0, tmp_path / "first", tmp_path / "work", silent)
    longer = train_sft(data, MODEL, short, ENGINE, 1, tmp_path / "longer", tmp_path / "more", silent, initial=first)
    end = pl.read_parquet(first.path / "metrics.parquet")["loss"][-5:].mean()
    start = pl.read_parquet(longer.path / "metrics.parquet")["loss"][0]
    assert start == pytest.approx(end, rel=0.5)
    wide = MODEL.model_copy(update={"hidden": 64})
    with pytest.raises(InputError, match="another architecture"):
        train_sft(data, wide, short, ENGINE, 1, tmp_path / "never", tmp_path / "no", silent, initial=first)


def test_bad_data_is_one_clear_sentence(tmp_path: Path, make_pairs: Callable[..., SftDataRef]) -> None:
    data = make_pairs(conversations=4)

    def train(config: SftConfig = CONFIG, model: ModelConfig = MODEL) -> CheckpointRef:
        return train_sft(data, model, config, ENGINE, 0, tmp_path / "never", tmp_path / "work", silent)

    with pytest.raises(InputError, match=r"sft.max_tokens: all 4 conversations are longer than 16 tokens"):
        train(config=CONFIG.model_copy(update={"max_tokens": 16}))
    with pytest.raises(InputError, match=r"sft.early_stop: needs conversations to validate on"):
        train(config=CONFIG.model_copy(update={"early_stop": 1}))
    pl.DataFrame({"messages": [[{"role": "user", "content": "x", "trained": True}]], "used": [False]}).write_parquet(
        data.path / "pairs.parquet"
    )
    with pytest.raises(InputError, match=r"expected at least one pair with used=true, found none among 1"):
        train()
    (data.path / "pairs.parquet").write_text("no table")
    with pytest.raises(InputError, match=r"pairs.parquet: expected a Parquet table"):
        train()
    assert not (tmp_path / "never").exists()


def test_a_mixture_of_experts_learns(
    tmp_path: Path, make_pairs: Callable[..., SftDataRef], save_experts: Callable[..., None]
) -> None:
    save_experts(tmp_path / "experts", max_position_embeddings=1024)
    model = MODEL.model_copy(update={"pretrained": str(tmp_path / "experts")})
    config = CONFIG.model_copy(update={"steps": 20})
    policy = train_sft(make_pairs(), model, config, ENGINE, 0, tmp_path / "sft", tmp_path / "work", silent)
    metrics = pl.read_parquet(policy.path / "metrics.parquet")
    assert metrics["loss"][-1] < 0.7 * metrics["loss"][0]
    before, after = load_file(tmp_path / "experts/model.safetensors"), load_file(policy.path / "model.safetensors")
    assert before.keys() == after.keys()
    assert not any(torch.equal(before[name], after[name]) for name in before if ".mlp." in name)
