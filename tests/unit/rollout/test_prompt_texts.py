"""The user's own system message and templates: in every prompt, the same in SFT, and wrong ones are one sentence."""

from pathlib import Path
from typing import Any

import pytest

from flows.settings.configuration import RunConfig, check_configuration, load_configuration, save_configuration
from kernels_eval.errors import InputError
from kernels_eval.frozen import decisive_part
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM, Problem
from kernels_eval.verdict import Status, Verdict
from tasks.agents.config import AgentConfig
from tasks.models.chat_templates import Role
from tasks.rollout.agent_prompts import agent_messages
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.prompts import HistoryTurn, answer_text, prompt_messages
from tasks.sft.pair_rows import pair_row

FIRST = "Translate {x} to {{ language }}:\n<code>\n{{problem}}\n</code>\nAs here:\n{{ example }}\n"
LATER = "Said the judge:\n{{ feedback }}\n{{ wish }} in {{language}}!\n"
OWN = EpisodeConfig(system_message="You know {{ language }}.\n", prompt_template=FIRST, retry_template=LATER)
WRONG = Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values")
HISTORY = [HistoryTurn(response_text=answer_text("k = 1\n"), kernel_source="k = 1\n", verdict=WRONG, reward=0.1)]


def configured(**episode: Any) -> RunConfig:
    return check_configuration({"rollout": {"episode": episode}}, "run.yaml")


def test_the_users_texts_are_the_prompt() -> None:
    system, first, answer, later = prompt_messages("class Model: ...\n", HISTORY, OWN)
    assert (system.role, system.content) == (Role.SYSTEM, "You know Triton.")
    assert first.content.startswith(
        "Translate {x} to Triton:\n<code>\nclass Model: ...\n</code>\nAs here:\n```python\n"
    )
    assert answer.content == HISTORY[0].response_text
    assert later.content.startswith("Said the judge:\nYour kernel was judged.\n")
    assert later.content.endswith("\nMend it in Triton!")


def test_a_problem_that_has_placeholders_is_not_filled_in() -> None:
    _, first = prompt_messages("x = '{{ language }}'\n", [], OWN)
    assert "x = '{{ language }}'" in first.content


@pytest.mark.parametrize("shown", ["history", "problem", "kernel"])
def test_agents_get_them_too_with_their_instructions_in_the_first_request(shown: Any) -> None:
    agent = AgentConfig(turns="later", shown=shown, instructions="Be the optimizer.")
    system, first, *_ = agent_messages("class Model: ...\n", HISTORY, OWN, "cuda", agent)
    assert system.content == "You know CUDA C++."
    assert first.content.startswith("Be the optimizer.\n\nTranslate {x} to CUDA C++:")
    assert ("Said the judge:" in first.content) is (shown == "kernel")


def test_sft_has_the_same_form() -> None:
    problem = Problem(problem_id="p", source=EXAMPLE_PROBLEM)
    row = pair_row(problem, HISTORY, EXAMPLE_KERNEL, WRONG, OWN, "triton", keeps=False)
    asked = [message.model_dump(mode="json") for message in prompt_messages(EXAMPLE_PROBLEM, HISTORY, OWN)]
    assert row["messages"][:-1] == asked


def test_a_file_is_read_once_and_its_text_counts(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("\ufeffWrite it:\n{{ problem }}", encoding="utf-8")
    config = configured(prompt_template=str(file))
    assert config.rollout.episode.prompt_template == "Write it:\n{{ problem }}\n"
    save_configuration(config, tmp_path / "config.yaml")
    file.write_text("Write that:\n{{ problem }}\n", encoding="utf-8")
    assert configured(prompt_template=str(file)).run_id != config.run_id
    file.unlink()
    assert load_configuration(tmp_path / "config.yaml") == config
    assert RunConfig.model_validate(config.model_dump(mode="json")).run_id == config.run_id


def test_without_them_keys_are_what_they_were() -> None:
    assert not {"system_message", "prompt_template", "retry_template"} & decisive_part(EpisodeConfig()).keys()
    assert "system_message" in decisive_part(OWN)


@pytest.mark.parametrize(
    ("setting", "content", "sentence"),
    [
        ("prompt_template", "Write it.\n", "expected the placeholder {{ problem }} in its text, which has none"),
        ("prompt_template", "{{ problem }} {{ sorce }}", "expected placeholders {{ problem }}, {{ language }}, {{ example }} in its text, which has {{ sorce }}"),
        ("prompt_template", " \n", "expected a file with a text in it, and it is empty"),
        ("retry_template", "{{ problem }}", "expected placeholders {{ feedback }}, {{ wish }}, {{ language }} in its text, which has {{ problem }}"),
        ("retry_template", "Again: {{ wish }}", "expected the placeholder {{ feedback }} in its text, which has {{ wish }}"),
        ("system_message", b"\xff\xfe", "expected a file of UTF-8 text"),
        ("system_message", None, "there is no such file"),
        ("system_message", "folder", "there is no such file"),
    ],
)  # fmt: skip
def test_a_bad_text_is_one_sentence(setting: str, content: str | bytes | None, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    if content == "folder":
        file.mkdir()
    elif content is not None:
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError) as caught:
        configured(**{setting: str(file)})
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(f"run.yaml: rollout.episode.{setting}: found ")
