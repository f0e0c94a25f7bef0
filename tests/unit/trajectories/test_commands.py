"""`kernelmill data analyze | trajectory | rescore` on a run's folder, on a batch, on logs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flows.cli.main import run
from tasks.models.chat_templates import Message, Role
from tasks.pipeline.store import read_manifest
from tasks.trajectories.reader import find_batches, read_turns_file
from tasks.trajectories.schema import TURNS_FILE

Runs = Callable[[int], Path]


def test_analyze_prints_tables(run_folder: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "analyze", str(run_folder(2))]) == 0
    printed = capsys.readouterr().out
    for words in ("trajectories on 4 problems", "aggregated return", "improvement rate", "by turn", "by iteration"):
        assert words in printed
    assert "train)" in printed
    assert "(roofline)" in printed
    assert "(gpu)" in printed
    assert "left out: the machine failed" in printed


def test_analyze_writes_what_the_name_says(
    run_folder: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(run_folder(1))
    assert run(["data", "analyze", folder, "--json", "--output", str(tmp_path / "figures.json"), "--top", "1"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert json.loads((tmp_path / "figures.json").read_text()) == printed
    assert len(printed["top"]) == 1
    assert run(["data", "analyze", folder, "-o", str(tmp_path / "plot.svg")]) == 0
    assert (tmp_path / "plot.svg").read_text().startswith("<?xml")
    assert run(["data", "analyze", folder, "-o", str(tmp_path / "plot.doc")]) == 2
    assert run(["data", "analyze", str(tmp_path / "nowhere")]) == 2
    assert run(["data", "analyze", folder, "--split", "train"]) == 0
    assert run(["data", "analyze", folder, "--split", "heldout"]) == 2


def test_analyze_names_broken_logs(stored: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stored.logs(stored.trajectories(1), tmp_path / "logs")
    (tmp_path / "logs" / "trajectory_p_20250101_000000_000000.json").write_text("{")
    assert run(["data", "analyze", str(tmp_path / "logs")]) == 0
    captured = capsys.readouterr()
    assert "by turn" in captured.out
    assert captured.err.startswith("left out: trajectory_p_20250101_000000_000000.json")


def test_analyze_names_a_batch_that_lost_its_turns(run_folder: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(2)
    lost, kept = [batch / "turns.parquet" for batch in find_batches(folder)]
    lost.unlink()
    assert run(["data", "analyze", str(folder)]) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith("left out: ")
    assert "turns.parquet: missing: the manifest lists it" in " ".join(captured.err.split())
    kept.unlink()
    assert run(["data", "analyze", str(folder)]) == 2
    assert "turns.parquet" in capsys.readouterr().err


def test_a_batch_of_a_run_that_is_gone_is_named(run_folder: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    folder = run_folder(2)
    shutil.rmtree(find_batches(folder)[1].resolve())
    assert run(["data", "analyze", str(folder)]) == 0
    assert "iteration=1: expected a published artifact" in " ".join(capsys.readouterr().err.split())


def test_a_damaged_batch_is_left_out_of_figures_by_name_and_never_exported(
    run_folder: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_folder(3)
    garbled, changed, _ = find_batches(folder)
    (garbled / "manifest.json").write_bytes(b"\x00\xff{")
    table = bytearray((changed / "turns.parquet").read_bytes())
    table[len(table) // 2] ^= 0xFF
    (changed / "turns.parquet").write_bytes(table)
    assert run(["data", "analyze", str(folder), "--json"]) == 0
    captured = capsys.readouterr()
    said = captured.err.splitlines()
    assert json.loads(captured.out)["trajectories"] <= 24
    assert [line.partition(": ")[0] for line in said] == ["left out"] * 2
    assert f"{garbled.name}/manifest.json: not a manifest" in said[0]
    assert f"{changed.name}/turns.parquet: damaged" in said[1]
    for command in (["export", str(tmp_path / "out.jsonl")], ["compact", str(tmp_path / "out")]):
        assert run(["data", command[0], str(folder), command[1]]) == 2
        assert "manifest.json: not a manifest" in " ".join(capsys.readouterr().err.split())
        assert not Path(command[1]).exists()


def test_show_without_a_tokenizer(run_folder: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["data", "trajectory", "train-0001-p2-003", "--dataset", str(run_folder(2))]) == 0
    printed = capsys.readouterr().out
    assert "train-0001-p2-003" in printed
    assert "─ solver" in printed
    assert "─ judge" in printed
    assert "--tokenizer" in printed


def test_show_reads_logs(stored: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trajectories = stored.trajectories(1)
    stored.logs(trajectories, tmp_path / "logs")
    longest = max(trajectories, key=lambda each: len(each.turns))
    assert run(["data", "trajectory", longest.trajectory_id, "-d", str(tmp_path / "logs")]) == 0
    printed = capsys.readouterr().out
    assert printed.count("─ assistant") == printed.count("─ judge") == len(longest.turns)
    assert run(["data", "trajectory", "nobody", "-d", str(tmp_path / "logs")]) == 2


def test_show_tells_the_whole_conversation(
    stored: Any, family_tokenizer: Callable[[str], Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Prompts are decoded by the policy's own tokenizer, each message once."""
    from dataclasses import replace

    from tasks.rollout.turn_tokens import first_prompt, next_prompt

    tokenizer = family_tokenizer("llama3.1")
    tokenizer.save_pretrained(str(tmp_path / "tokenizer"))
    played = next(each for each in stored.trajectories(1) if len(each.turns) == 3 and each.turns[-1].reward is not None)
    messages = [Message(role=Role.USER, content="write the kernel")]
    prompt, turns = first_prompt(tokenizer, messages), []
    for turn in played.turns:
        response = (*tokenizer(turn.response_text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)
        turns.append(
            replace(
                turn,
                prompt_token_ids=prompt.token_ids,
                response_token_ids=response,
                response_logprobs=(-0.5,) * len(response),
                prompt_extends_previous=prompt.extends_previous,
            )
        )
        messages += [
            Message(role=Role.ASSISTANT, content=turn.response_text),
            Message(role=Role.USER, content=f"verdict {len(turns)}"),
        ]
        prompt = next_prompt(tokenizer, prompt, response, messages)
    stored.batch([replace(played, turns=tuple(turns))], tmp_path / "batch")
    arguments = [
        "data",
        "trajectory",
        played.trajectory_id,
        "-d",
        str(tmp_path / "batch"),
        "--tokenizer",
        str(tmp_path / "tokenizer"),
    ]
    assert run(arguments) == 0
    printed = capsys.readouterr().out
    assert printed.count("write the kernel") == printed.count("verdict 1") == printed.count("verdict 2") == 1
    assert "eot_id" not in printed
    assert printed.count("─ user") == printed.count("─ solver") == 3


def test_rescore_writes_beside_or_where_it_is_told(
    stored: Any, run_folder: Runs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stored.batch(stored.trajectories(1), tmp_path / "batch")
    before = read_turns_file(tmp_path / "batch" / TURNS_FILE)
    assert run(["data", "rescore", str(tmp_path / "batch"), "--reward", "kevin-0.2*length"]) == 0
    assert "mean aggregated return" in capsys.readouterr().out
    after = read_turns_file(tmp_path / "batch-kevin-0.2xlength" / TURNS_FILE)
    assert not after["reward"].equals(before["reward"])
    assert read_turns_file(tmp_path / "batch" / TURNS_FILE).equals(before)
    assert run(["data", "rescore", str(tmp_path / "batch"), "--reward", "kevin-0.2*length"]) == 2, "is there already"
    # A run's batches, each in a folder of its own; links into the store are not followed back.
    assert (
        run(
            [
                "data",
                "rescore",
                str(run_folder(2)),
                "--reward",
                "kevin",
                "-o",
                str(tmp_path / "kevin"),
                "--gamma",
                "0.9",
            ]
        )
        == 0
    )
    for iteration in range(2):
        manifest = read_manifest(tmp_path / "kevin" / f"iteration={iteration}") or {}
        assert manifest["metadata"]["episode"] == {"reward": "kevin", "gamma": 0.9}
    assert run(["data", "rescore", str(tmp_path / "batch"), "--reward", "applause"]) == 2
