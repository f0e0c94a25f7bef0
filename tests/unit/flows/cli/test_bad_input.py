"""Bad input of every kind: one line that names file or field, the finding and the expectation; exit code 2."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import polars as pl
import pytest

from flows.cli.main import run

PROBLEM = """import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.rand(4)]
def get_init_inputs():
    return []
"""
CAUSAL = '{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}'


class Folder:
    """A folder in which the input is made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.config = self.text("run.yaml", f"name: demo\nruns_dir: {path / 'runs'}\n")

    def text(self, name: str, content: str | bytes) -> str:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(file)

    def lines(self, *rows: object) -> str:
        return self.text("rows.jsonl", "".join(json.dumps(row) + "\n" for row in rows))

    def table(self, columns: dict[str, list[object]]) -> str:
        pl.DataFrame(columns).write_parquet(self.path / "table.parquet")
        return str(self.path / "table.parquet")

    def model(self, config: str | None = CAUSAL, weights: bytes | None = b"", tokenizer: str | None = "{}") -> str:
        for name, content in (("config.json", config), ("model.safetensors", weights), ("tokenizer.json", tokenizer)):
            if content is not None:
                self.text(f"model/{name}", content)
        return str(self.path / "model")

    def loop(self) -> str:
        (self.path / "loop").symlink_to("loop")
        return str(self.path / "loop")

    def empty(self) -> str:
        (self.path / "empty").mkdir()
        return str(self.path / "empty")


class Bad(NamedTuple):
    """A command with bad input, and the words of its line."""

    name: str
    arguments: Callable[[Folder], list[str]]
    words: tuple[str, ...]


def command(*arguments: str, words: tuple[str, ...]) -> Bad:
    return Bad(" ".join(arguments), lambda _: list(arguments), words)


def override(*settings: str, words: tuple[str, ...]) -> Bad:
    sets = [part for setting in settings for part in ("--set", setting)]
    return Bad(" ".join(settings)[:60], lambda at: ["train", at.config, *sets], words)


def named(setting: str, make: Callable[[Folder], str], *settings: str, words: tuple[str, ...]) -> Bad:
    """A setting that names a file with bad content."""
    sets = [part for each in settings for part in ("--set", each)]
    name = f"{setting} {' '.join(words)}"
    return Bad(name, lambda at: ["train", at.config, *sets, "--set", f"{setting}={make(at)}"], words)


def problems(make: Callable[[Folder], str], source: str, words: tuple[str, ...]) -> Bad:
    return named("problems.path", make, f"problems.source={source}", words=words)


def config(text: str | bytes, *words: str) -> Bad:
    return Bad(repr(text)[:60], lambda at: ["train", at.text("bad.yaml", text)], ("bad.yaml", *words))


def evaluated(make: Callable[[Folder], str], *arguments: str, words: tuple[str, ...]) -> Bad:
    return Bad(
        f"--problems {' '.join(words)}",
        lambda at: ["evaluate", "-c", at.config, "--problems", make(at), *arguments],
        words,
    )


def checkpoint(make: Callable[[Folder], str], *words: str) -> Bad:
    return Bad(
        f"--checkpoint {' '.join(words)}", lambda at: ["evaluate", "-c", at.config, "--checkpoint", make(at)], words
    )


OPTIONS = [
    command("trian", words=("No such command 'trian'", "Did you mean 'train'")),
    command("train", "--confg", "x", words=("No such option: --confg", "kernelmill train --help")),
    command("train", "--config", words=("--config", "requires an argument")),
    command("plan", "--utilisation", "2", words=("--utilisation: found 2, expected at most 1",)),
    command("plan", "--utilisation", "half", words=("--utilisation: found half, expected a number",)),
    command("plan", "--gpu", "b200", words=("--gpu: found b200, expected one of a100",)),
    command("serve", "judge", "--port", "99999", words=("--port: found 99999, expected at most 65535",)),
    command("serve", "judge", "--port", "http", words=("--port: found http, expected a whole number",)),
    command("serve", "judge", "--port=http", words=("--port: found http, expected a whole number",)),
    command("data", "export", "x", "y", "--format", "xml", words=("--format: 'xml' is not one of 'jsonl'",)),
    command("judge", "explain", ":x:", words=("explain: ':x:' is no error category",)),  # no emoji
    command("data", "analyze", "--top", "9" * 30, words=("--top: found 999", "expected at most 1000000000")),
    command("data", "show", "--rows", "9" * 30, words=("--rows: found 999", "expected at most 1000000000")),
    command("watch", "--interval", "inf", words=("--interval: found inf, expected at most 86400",)),
    command("data", "analyze", "--top", "-1", words=("--top: found -1, expected at least 0",)),
    command("data", "analyze", "x", "--output", "x.bmp", words=("--output: x.bmp", ".json, .svg")),
    command(
        "data",
        "rescore",
        "x",
        "--reward",
        "kevin",
        "--gamma",
        "2",
        words=("--gamma: found 2, expected at most 1",),
    ),
    command("compare", "only", words=("policies: expected two or more", "found 1")),
    command("judge", "redteam", "--set", "judge.workers=0", words=("judge.workers: found 0",)),
    Bad("links", lambda at: ["watch", at.loop()], ("loop",)),
    Bad("report of an empty run", lambda at: ["report", at.config], ("nothing to report yet; run `kernelmill train`",)),
    Bad("--refresh", lambda at: ["train", at.config, "--refresh", "update x"], ("--refresh update x: no such stage",)),
    Bad(
        "too late",
        lambda at: ["train", at.config, "--refresh", "update 99"],
        ("update 99: expected an iteration from 0 to 7",),
    ),
    Bad("two words", lambda at: ["train", at.config, "extra", "more"], ("unexpected extra argument", "extra more")),
    evaluated(lambda at: at.lines({"source": PROBLEM}), words=("--problems", "expected --checkpoint or --model")),
    evaluated(lambda at: at.empty(), "--checkpoint", "x", words=("empty", "expected a KernelBench checkout")),
    evaluated(lambda at: at.config, "--checkpoint", "x", words=("run.yaml", "expected a file of problems")),
    override("problems.train=0", words=("problems.train: found 0", "of the generated suite")),
    override("problems.levels=[]", words=("problems.levels: found [], expected at least 1 in it",)),
    override(
        'judge.targets=["cuda:12"]', words=("judge.targets: found ['cuda:12'], expected an NVIDIA GPU from cuda:70",)
    ),
    override('judge.targets=["cuda:999"]', words=("judge.targets", "to cuda:129")),
    override('judge.targets=["gfx"]', words=("judge.targets: found ['gfx']", "such as hip:gfx942")),
    override("model.head_dim=31", words=("model.head_dim: found 31, expected a multiple of 2",)),
    override("model.hidden=100000000", words=("model.hidden: found 100000000, expected at most 65536",)),
    override("sft.betas=[1.5,0.9]", words=("sft.betas, item 1: found 1.5, expected less than 1",)),
    override("update.betas=[0.9,-1]", words=("update.betas, item 2: found -1, expected at least 0",)),
    override("ray.cpus=9999", words=("ray.cpus: found 9999, expected at most",)),
    override("update.ranks=9999", words=("update.ranks: found 9999, expected at most",)),
    override("problems.path=/nowhere", words=("problems.source = generated reads no file; set problems.source",)),
    override("problems.levels=[1,9]", words=("problems.levels: found 9, expected some of 1, 2, 3",)),
    named(
        "problems.path",
        lambda at: at.lines({"source": PROBLEM}),
        "problems.source=jsonl",
        "problems.train=0",
        words=("problems.train: found 0, with iterations", "iterations = 0"),
    ),
    Bad("score", lambda at: ["judge", "score", at.text("a.py", "def x(:"), at.config], ("a.py: not Python", "line 1")),
    Bad(
        "binary",
        lambda at: ["judge", "score", at.text("a.py", b"\xff\xfe"), at.config],
        ("a.py: cannot be read", "utf-8"),
    ),
    Bad("folder", lambda at: ["judge", "score", at.empty(), at.config], ("empty: cannot be read", "directory")),
    Bad(
        "backend",
        lambda at: ["judge", "score", at.text("a.py", PROBLEM), at.config, "--backend", "cude"],
        ("backend: found 'cude', expected one of auto, cuda, cute, hip, tilelang, triton",),
    ),
    Bad(
        "token",
        lambda at: ["serve", "judge", "--token-file", at.text("token", "short")],
        ("token: expected a token of at least 8",),
    ),
]
OVERRIDES = [
    override("seed", words=("--set seed: expected the form a.b=value",)),
    override(".=1", words=("--set .=1: expected the form a.b=value",)),
    override("seed=[1", words=("--set seed=[1", "not YAML")),
    override("seed={a: 1, a: 2}", words=("a is set twice",)),
    override("iterations=1:30", words=("iterations: found '1:30', expected a whole number",)),
    override("name=" + "x" * 300, words=("name: found 'xxx",)),
    override("seed=2020-99-99", words=("--set seed=2020-99-99", "month must be in 1..12")),
    override("seed=" + "[" * 600, words=("--set seed=[", "nested too deeply")),
    override("seed=true", words=("seed: found true, expected a number",)),
    override("sft.data.compositions=true", words=("sft.data.compositions: found true, expected a number",)),
    override("seed=1.5", words=("seed: found 1.5, expected a whole number",)),
    override("sft.steps.x=1", words=("sft.steps: found {'x': 1}, expected a whole number",)),
    override("name=../x", words=("name: found '../x', expected text that matches",)),
    override("iterations=1e26", words=("iterations: found '1e26', expected a whole number",)),
    override("update.learning_rate=1e400", words=("update.learning_rate: found inf, expected a finite number",)),
    override("update.learning_rate=.nan", words=("update.learning_rate: found nan, expected a finite number",)),
    override("evaluation.pass_at=[]", words=("evaluation.pass_at: found [], expected at least 1 in it",)),
    override("evaluation.pass_at=[0, 1]", words=("evaluation.pass_at, item 1: found 0",)),
    override("stages.timeouts_s.nostage=1", words=("stages.timeouts_s.nostage: no such stage; there are problems",)),
    override("ray.address=host:99999", words=("ray.address: found 'host:99999', expected host:6379",)),
    override("rollout.temperature=1", words=("rollout.temperature: unknown setting; did you mean",)),
]
FILES = [
    config("a: b: c\n", "not YAML", "line 1"),
    config("name: a\nname: b\n", "name is set twice", "line 2"),
    config("name: &a [*a]\n", "nested too deeply, or in themselves"),
    config("a: " + "[" * 600 + "]" * 600, "nested too deeply"),
    config("name: demo\n---\nname: x\n", "expected a single document"),
    config("name: !!python/object:os.system x\n", "not YAML", "python/object"),
    config("- 1\n", "expected a mapping of settings, found list"),
    config(b"\xff\xfe", "cannot be read as a configuration file"),
    config("#" * 2**23, "expected a configuration of at most 4 MiB"),
    config("extends: [a]\n", "extends: found ['a'], expected the name of a file"),
    config("update: {learning_rate: .inf}\n", "update.learning_rate: found inf"),
    config("judge: {workers: 10000000000000000000000}\n", "judge.workers: found 1e+22"),
    named("update.deepspeed", lambda at: at.text("ds.json", "[]"), words=("ds.json", "expected an object, found list")),
    named(
        "update.deepspeed",
        lambda at: at.text("ds.json", '{"zero_optimization": 3}'),
        words=("ds.json: zero_optimization: found 3",),
    ),
    named(
        "update.deepspeed",
        lambda at: at.text("ds.json", '{"train_batch_size": 3}'),
        words=("train_batch_size is not the file's to set; set update.optimizer_steps",),
    ),
    named("validation.suites", lambda at: at.empty(), words=("validation.suites", "turns.json", "found none")),
    named(
        "validation.suites",
        lambda at: str(Path(at.text("suites/turns.json", "{")).parent),
        words=("turns.json: expected a Great Expectations suite in JSON",),
    ),
    named("sft.data.path", lambda at: at.table({"x": [1]}), words=("table.parquet row 1", "found x")),
    problems(lambda at: at.lines({"source": 3}), "jsonl", ("rows.jsonl line 1: column `source`", "found 3")),
    problems(lambda at: at.lines({"source": "x="}), "jsonl", ("rows.jsonl line 1: not Python",)),
    problems(lambda at: at.lines({"source": PROBLEM, "level": "x"}), "jsonl", ("column `level`", "found 'x'")),
    problems(lambda at: at.lines({"source": PROBLEM, "split": "y"}), "jsonl", ("column `split`", "found 'y'")),
    problems(lambda at: at.lines([1]), "jsonl", ("rows.jsonl row 1: expected a JSON object, found int",)),
    problems(lambda at: at.text("rows.jsonl", b"\xff"), "jsonl", ("rows.jsonl line 1", "utf-8")),
    problems(lambda at: at.text("rows.jsonl", ""), "jsonl", ("rows.jsonl: expected problems, found none",)),
    problems(lambda at: at.empty(), "jsonl", ("empty: expected a file of JSON Lines or with a JSON array",)),
    problems(
        lambda at: at.table({"source": [1]}),
        "parquet",
        ("table.parquet row 1: column `source`: expected text, found 1",),
    ),
    problems(lambda at: at.table({"source": []}), "parquet", ("table.parquet: expected problems, found none",)),
    problems(lambda at: at.text("table.parquet", ""), "parquet", ("table.parquet: not a readable Parquet file",)),
    problems(lambda at: at.empty(), "huggingface", ("expected a Hugging Face dataset folder", "found none")),
    problems(lambda at: str(Path(at.text("hf/state.json", "{")).parent), "huggingface", ("state.json: expected JSON",)),
]
MODELS = [
    checkpoint(lambda at: at.model("{"), "config.json: expected JSON"),
    checkpoint(lambda at: at.model("[]"), "config.json: expected an object, found list"),
    checkpoint(lambda at: at.model('{"model_type": "bert"}'), "model_type: found bert, expected qwen3"),
    checkpoint(lambda at: at.config, "--checkpoint: no such folder"),
    named("model.pretrained", lambda at: at.model("[]"), words=("config.json: expected an object, found list",)),
    named("model.pretrained", lambda at: at.model('{"architectures": [3]}'), words=("found 3, expected a causal",)),
    named(
        "model.pretrained", lambda at: at.model(weights=None), words=("expected weights (*.safetensors), found none",)
    ),
    named("model.pretrained", lambda at: at.model(tokenizer=None), words=("expected a tokenizer", "found none")),
    named("model.pretrained", lambda at: at.model(), words=("model.safetensors: expected weights in the format",)),
    named(
        "update.critic.pretrained",
        lambda at: at.model("{"),
        "update.advantage=gae",
        words=("update.critic.pretrained", "config.json: expected JSON"),
    ),
]
CASES = [*OPTIONS, *OVERRIDES, *FILES, *MODELS]


@pytest.mark.parametrize("case", [pytest.param(case, id=f"{number}: {case.name}") for number, case in enumerate(CASES)])
def test_bad_input_is_refused_in_a_line(case: Bad, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    code = run(case.arguments(Folder(tmp_path)))
    said = capsys.readouterr().err
    assert (code, len(said.splitlines())) == (2, 1), said
    assert said.startswith("error: ")
    for words in case.words:
        assert words in said
    assert not list(tmp_path.glob("runs/*"))  # nothing was started


@pytest.mark.parametrize(
    ("variable", "value", "arguments", "words"),
    [
        ("PREFECT_API_URL", "garbage", ["alert"], "PREFECT_API_URL: expected the address of a Prefect server"),
        (
            "KERNELMILL_JUDGE_TOKEN",
            "short",
            ["serve", "judge"],
            "KERNELMILL_JUDGE_TOKEN: expected a token of at least 8",
        ),
        ("KERNELMILL_JUDGE_TOKEN", "ümläut ümläut", ["serve", "judge"], "KERNELMILL_JUDGE_TOKEN: expected a token"),
        (
            "PREFECT_CLIENT_MAX_RETRIES",
            "many",
            ["train"],
            "PREFECT_CLIENT_MAX_RETRIES: found 'many', expected a whole number",
        ),
        ("PREFECT_LOGGING_LEVEL", "LOUD", ["alert"], "PREFECT_LOGGING_LEVEL: found 'LOUD', expected 'DEBUG'"),
        ("TMPDIR", "/nowhere", ["train"], "TMPDIR: found /nowhere, expected a folder that can be written"),
    ],
)
def test_a_bad_variable_is_refused_in_a_line(
    variable: str, value: str, arguments: list[str], words: str, tmp_path: Path
):
    given = [Folder(tmp_path).config] if arguments == ["train"] else []
    command = [sys.executable, "-m", "flows.cli.main", *arguments, *given]
    environment = {name: text for name, text in os.environ.items() if name != "PREFECT_API_URL"} | {variable: value}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert words in done.stderr


def test_a_limit_of_the_system_is_one_line_with_its_remedy(tmp_path: Path):
    program = f'ulimit -f 100; exec "{sys.executable}" -m flows.cli.main data generate "$0"'
    command = ["bash", "-c", program, str(tmp_path / "pairs.jsonl")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    assert "File too large (`ulimit -f` raises the limit). The same command continues." in done.stderr
