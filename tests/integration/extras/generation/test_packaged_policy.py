"""A package as its user has it: moved elsewhere, its run gone; with kernelmill, and with transformers alone."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from imported import import_file

from kernels_eval.problem import EXAMPLE_PROBLEM

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def place(policy_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a module, and the package `mine` of a run that is gone."""
    from flows.cli.main import run

    folder = tmp_path_factory.mktemp("user")
    run_folder = import_file(ROOT / "tests" / "doubles" / "invented_run.py").make_run(folder / "runs", policy_folder)
    assert run(["policy", "package", str(run_folder), str(folder / "elsewhere" / "mine")]) == 0
    shutil.rmtree(folder / "runs")
    (folder / "elsewhere" / "mine").rename(folder / "mine")
    (folder / "MODULE.py").write_text(EXAMPLE_PROBLEM)
    return folder


@pytest.mark.long
def test_generate_with_the_packages_own_settings(place: Path):
    words = ["generate", "MODULE.py", "--policy", "mine", "--budget", "3", "--turns", "1", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "flows.cli.main", *words], cwd=place, env=environment(), capture_output=True, text=True,
        timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr  # of random weights
    result = json.loads(done.stdout)
    assert (result["judged"], result["outcome"], result["policy"]) == (3, "original", "mine")
    # By default a prompt has instructions, and an answer 8192 tokens, more than this model's context.
    assert result["tokens"]["prompt"] == 3 * len(prompt_in_rollouts(place))
    assert 0 < result["tokens"]["completion"] <= 3 * 12


def test_the_cards_program_asks_as_rollouts_do(place: Path):
    card = (place / "mine" / "README.md").read_text(encoding="utf-8")
    (program,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    program += 'print("IDS", inputs["input_ids"][0].tolist(), output.shape[1])\n'
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=place, env=environment(), capture_output=True, text=True, timeout=240,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found, length = re.findall(r"IDS (\[.*\]) (\d+)", done.stdout)[0]
    assert json.loads(found) == list(prompt_in_rollouts(place))
    assert len(json.loads(found)) < int(length) <= len(json.loads(found)) + 12


def prompt_in_rollouts(place: Path) -> tuple[int, ...]:
    from flows.settings.configuration import load_configuration
    from tasks.models.tokenizer import load_tokenizer
    from tasks.rollout.prompts import prompt_messages
    from tasks.rollout.turn_tokens import first_prompt

    episode = load_configuration(place / "mine" / "kernelmill.yaml").rollout.episode
    messages = prompt_messages(EXAMPLE_PROBLEM, (), episode)
    return first_prompt(load_tokenizer(place / "mine"), messages, thinking=episode.thinking).token_ids


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
