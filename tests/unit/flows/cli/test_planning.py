"""`kernelmill plan`: the capacity as text, and exit code 1 if it does not fit."""

from pathlib import Path

import pytest

from flows.cli.main import run

CONFIGS = Path("deployments/configs")


def test_the_command_says_it_and_fails_where_it_does_not_fit(capsys: pytest.CaptureFixture[str]):
    config = str(CONFIGS / "qwen3-8b-multi-turn.yaml")
    assert run(["plan", config]) == 0
    said = capsys.readouterr().out
    assert "8.19 billion weights on 6 × H100" in said
    assert "ZeRO-3 on 4 ranks: fits" in said
    assert "tokens/s trained" in said
    assert "disk: 107 GiB a checkpoint; 0.7 TiB of the first policy and 200 iterations stay in runs/store" in said
    assert "update.context_parallel" not in said
    assert run(["plan", config, "--set", "update.context_parallel=1"]) == 0
    assert "puts 7,644 tokens on a rank, more than update.tokens_per_rank = 4,096" in capsys.readouterr().out
    assert run(["plan", config, "--set", "update.ranks=1", "--set", "update.context_parallel=1"]) == 1
    assert "it does not fit; try in this order: --set rollout.problems_per_iteration=1" in capsys.readouterr().out
    assert run(["plan", config, "--gpu", "tpu"]) == 2
    assert run(["plan", str(CONFIGS / "local.yaml")]) == 0
    assert "no GPU: fits where" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "settings", "often"),
    [
        ("one-gpu", [], "once;"),
        ("one-gpu", ["update.optimizer_state=false"], "once in each iteration;"),
        ("agents-gpu", [], "once for each of 2 agents;"),
        ("agents-gpu", ["update.optimizer_state=false"], "2 times in each iteration;"),
        ("agents-qwen2.5-coder-7b", [], "once, and 1 more time in each iteration;"),
    ],
)
def test_the_command_says_how_often_an_engine_starts(
    name: str, settings: list[str], often: str, capsys: pytest.CaptureFixture[str]
):
    given = [part for setting in settings for part in ("--set", setting)]
    assert run(["plan", str(CONFIGS / f"{name}.yaml"), *given]) == 0
    said = capsys.readouterr().out
    assert f"s, {often}" in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "smollm2-kernelbench",
            "model.pretrained: models/SmolLM2-135M-Instruct: its sizes are taken for HuggingFaceTB/SmolLM2-135M-Instruct's",
        ),
        ("qwen3-8b-multi-turn", None),
        ("one-gpu", None),
    ],
)
def test_the_command_says_whose_sizes_stand_for_a_folder_that_is_not_here(
    name: str, said: str | None, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    run(["plan", str(CONFIGS / f"{name}.yaml")])
    found = capsys.readouterr().out
    assert ("its sizes are taken for" in found) == (said is not None)
    assert said is None or said in found
