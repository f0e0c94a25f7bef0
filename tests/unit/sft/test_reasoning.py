"""Reasoning in SFT: found in people's files, kept or dropped, and trained in the form of the model's chat template."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from flows.checks.settings import check_reasoning
from flows.settings.configuration import check_configuration
from kernels_eval import JudgeConfig, Status, Verdict
from kernels_eval.errors import InputError
from kernels_eval.frozen import decisive_part
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM
from tasks.answers.reasoning import reasoning_of
from tasks.models.chat import encode_prompt, encode_samples, template_family
from tasks.models.chat_templates import Message, split_thought, with_thought
from tasks.pipeline.references import ProblemSetRef, silent
from tasks.pipeline.tables import PAIRS_FILE
from tasks.problems.config import ProblemsConfig
from tasks.problems.pairs import load_pairs
from tasks.problems.problem_set import build_problem_set
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import answer_text
from tasks.sft.config import SftDataConfig
from tasks.sft.pairs import build_sft_data

PROBLEM, KERNEL = EXAMPLE_PROBLEM.lstrip("\n"), EXAMPLE_KERNEL.lstrip("\n")
FENCED = f"```python\n{KERNEL}```"
ASKED = {"role": "user", "content": PROBLEM}
THOUGHT = "A row a program.\n\nFour rows."
FORMS: dict[str, dict[str, Any]] = {
    "tags in messages": {"messages": [ASKED, {"role": "assistant", "content": f"<think>\n{THOUGHT}\n</think>\n\n{FENCED}"}]},
    "a field of the message": {"messages": [ASKED, {"role": "assistant", "content": FENCED, "reasoning_content": THOUGHT}]},
    "a prompt that opened it": {"prompt": PROBLEM, "completion": f"{THOUGHT}\n</think>\n{FENCED}"},
    "tags in output": {"input": {"problem": PROBLEM}, "output": f"<reasoning>{THOUGHT}</reasoning>{FENCED}"},
    "a column of its own": {"problem_source": PROBLEM, "kernel_source": KERNEL, "reasoning": f"{THOUGHT}\n"},
}  # fmt: skip


def written(rows: list[dict[str, Any]], folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "pairs.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return file


@pytest.mark.parametrize("form", FORMS)
def test_reasoning_is_read_from_every_form(form: str, tmp_path: Path) -> None:
    (pair,) = load_pairs(written([FORMS[form]], tmp_path))
    assert (pair.reasoning, pair.kernel_source) == (THOUGHT, KERNEL)


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ("code", ""),
        ("<think>a</think>code", "a"),
        ("words <think>a</think> more <thinking> b </thinking>code", "a\n\nb"),
        ("a</think>b</think>code", "a\n\nb"),
        ("<think>never ends", ""),
        ("code <think>never ends", ""),
        ("analysisWe add.assistantfinal code", "We add."),
    ],
)
def test_reasoning_that_ends(answer: str, found: str) -> None:
    assert reasoning_of(answer) == found


@pytest.fixture(scope="module")
def problems(tmp_path_factory: pytest.TempPathFactory) -> ProblemSetRef:
    folder = tmp_path_factory.mktemp("problems")
    rows = [
        {"source": PROBLEM.replace("256", str(size)), "split": split}
        for size, split in ((64, "train"), (96, "heldout"))
    ]
    rows[1]["source"] = rows[1]["source"].replace("return ", "return 3.0 * ", 1)
    file = written(rows, folder)
    config = ProblemsConfig(source="jsonl", path=str(file), train=1, heldout=1, flag_trivial=False)
    return build_problem_set(config, folder / "set")


def answers(problems: ProblemSetRef, folder: Path, rows: list[dict[str, Any]], **settings: Any) -> list[str]:
    right = Verdict(status=Status.CORRECT, compiled=True, correct=True, speedup=2.0)
    config = SftDataConfig(path=str(written(rows, folder)), **settings)
    episode, judge = EpisodeConfig(thinking=True), JudgeConfig()
    built = build_sft_data(
        problems, config, ProblemsConfig(), episode, judge, 0, folder / "data", silent, lambda items, _c, _p: [right] * len(items)
    )  # fmt: skip
    return [row["messages"][-1]["content"] for row in pl.read_parquet(built.path / PAIRS_FILE).iter_rows(named=True)]


def test_kept_or_dropped(problems: ProblemSetRef, tmp_path: Path) -> None:
    rows = [FORMS["tags in messages"]]
    assert answers(problems, tmp_path, rows) == [answer_text(KERNEL)]
    kept = f"<think>\n{THOUGHT}\n</think>\n\n{answer_text(KERNEL)}"
    assert answers(problems, tmp_path / "kept", rows, reasoning="keep") == [kept]


def test_nothing_to_keep_is_said(problems: ProblemSetRef, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="keep, but none of 1 pairs has any"):
        answers(problems, tmp_path, [{"problem_source": PROBLEM, "kernel_source": KERNEL}], reasoning="keep")


@pytest.mark.parametrize(
    ("template", "opened"),
    [("qwen3", ""), ("qwen3-thinking", "<think>\n"), ("qwen3.5", "<think>\n"), ("deepseek-r1-distill", "<think>\n")],
)
def test_the_mask_is_what_the_published_template_writes_after_its_prompt(
    family_tokenizer: Callable[[str], Any], template: str, opened: str
) -> None:
    tokenizer = family_tokenizer(template)
    answer = with_thought(THOUGHT, answer_text(KERNEL))
    messages = [Message(role="user", content=PROBLEM), Message(role="assistant", content=answer, trained=True)]  # pyright: ignore
    (sample,) = encode_samples(tokenizer, messages, template_family(tokenizer))
    runs = [
        (trained, tokenizer.decode([token for token, _ in run]))
        for trained, run in itertools.groupby(
            zip(sample.token_ids, sample.loss_mask, strict=True), lambda pair: pair[1]
        )
    ]
    assert [trained for trained, _ in runs[:2]] == [False, True]
    assert runs[0][1] == tokenizer.decode(encode_prompt(tokenizer, messages[:1], thinking=True))
    assert runs[1][1].startswith(f"<think>\n{THOUGHT}\n</think>".removeprefix(opened))
    assert runs[1][1].rstrip("\n").endswith(f"```{tokenizer.eos_token}")
    if template != "deepseek-r1-distill":  # whose template drops what it has its prompt open
        said = [{"role": message.role.value, "content": message.content} for message in messages]
        text = tokenizer.apply_chat_template(said, tokenize=False, enable_thinking=True)
        assert "".join(part for _, part in runs).rstrip("\n") == text.rstrip("\n")


def test_a_tag_in_a_thought_cannot_end_it() -> None:
    assert split_thought(with_thought('It prints "</think>" <think>', "code")) == ('It prints ""', "code")


def test_keep_needs_a_corpus_and_a_policy_that_thinks() -> None:
    for settings, sentence in (
        ({}, "generated pairs have none"),
        ({"path": "pairs.jsonl"}, "expected rollout.episode.thinking: true"),
    ):
        config = check_configuration({"sft": {"data": {"reasoning": "keep", **settings}}}, "run.yaml")
        with pytest.raises(InputError, match=f"sft.data.reasoning: keep, .*{sentence}"):
            check_reasoning(config)


def test_the_default_is_in_no_key() -> None:
    assert "reasoning" not in decisive_part(SftDataConfig())
    assert decisive_part(SftDataConfig(reasoning="keep"))["reasoning"] == "keep"
