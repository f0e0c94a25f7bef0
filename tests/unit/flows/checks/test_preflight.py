"""Settings that would stop a run later are refused before it starts, with the setting and what was found."""

from collections.abc import Callable
from pathlib import Path

import pytest

from flows.checks.preflight import check_pretrained
from flows.settings.configuration import check_configuration
from kernels_eval.errors import InputError


@pytest.mark.parametrize("name", ["/nowhere/model", "./model", "runs/local-1a2b3c4d/checkpoints/policy-003"])
def test_a_folder_that_is_not_there_is_no_name_of_a_hub(name: str):
    config = check_configuration({"model": {"pretrained": name}}, "here")
    with pytest.raises(InputError, match=r"^model\.pretrained: no such folder: "):
        check_pretrained(config)


@pytest.mark.parametrize("name", ["gpt2", "Qwen/Qwen3-8B"])
def test_names_of_a_hub_pass(name: str):
    check_pretrained(check_configuration({"model": {"pretrained": name}}, "here"))


def test_a_policy_is_not_named_through_the_link_that_this_run_moves(tmp_path: Path):
    runs = tmp_path / "runs"
    (runs / "local-1a2b3c4d" / "checkpoints").mkdir(parents=True)
    (runs / "latest").symlink_to("local-1a2b3c4d")
    named = runs / "latest" / "checkpoints" / "policy-003"
    config = check_configuration({"runs_dir": str(runs), "model": {"pretrained": str(named)}}, "here")
    with pytest.raises(InputError, match=r"`latest` will be this run.*local-1a2b3c4d/checkpoints/policy-003$"):
        check_pretrained(config)


def test_adapters_on_experts_are_refused_before_a_run(tmp_path: Path, save_experts: Callable[..., None]) -> None:
    save_experts(tmp_path / "policy")
    settings = {"model": {"pretrained": str(tmp_path / "policy")}, "update": {"lora": {}}}
    with pytest.raises(InputError, match=r"^update\.lora\.targets: found all-linear for a model with 8 experts"):
        check_pretrained(check_configuration(settings, "here"))
    settings["update"] = {"lora": {"targets": ["q_proj", "v_proj"]}, "correction": {"weights": "icepop"}}
    check_pretrained(check_configuration(settings, "here"))


def test_experts_are_trained_by_rewards_only_where_tokens_of_other_choices_are_left_out(
    tmp_path: Path, save_experts: Callable[..., None]
) -> None:
    save_experts(tmp_path / "policy")

    def check(correction: dict[str, str], **settings: int) -> None:
        given = {"model": {"pretrained": str(tmp_path / "policy")}, "update": {"correction": correction}, **settings}
        check_pretrained(check_configuration(given, "here"))

    for weights in ("token_tis", "none"):
        with pytest.raises(
            InputError,
            match=rf"^update\.correction\.weights: found {weights} for a model with 8 experts.* expected icepop",
        ):
            check({"weights": weights})
    check({"weights": "icepop"})
    check({"rejection": "token"})
    check({}, iterations=0)
