"""`kernelmill generate` as a user sees it, with the real judge: a scripted model, and a policy of random weights."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from imported import import_file

from extras.tester.examples import LABELS
from extras.tester.network import VerdictNetwork
from extras.tester.training import FactsOfTester, TrainedTester, save_tester
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM

ROOT = Path(__file__).parents[4]
FAST = ["--set", "judge.compile=never", "--set", "judge.timeout_s=5", "--set", "judge.workers=2"]
WRONG = EXAMPLE_KERNEL.replace("* 2.0", "* 2.5")
HANGING = EXAMPLE_KERNEL.replace("        return out", "        while True: pass")


@pytest.fixture(scope="module")
def openai_double() -> Any:
    return import_file(ROOT / "tests" / "doubles" / "openai_server.py").openai_double


def answer(kernel: str) -> dict[str, Any]:
    return {"text": f"Here:\n```python\n{kernel}```\n"}


def generated(problem: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flows.cli.main", "generate", str(problem), *FAST, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=ROOT, check=False)


@pytest.fixture
def module(tmp_path: Path) -> Path:
    path = tmp_path / "fused.py"
    path.write_text(EXAMPLE_PROBLEM)
    return path


@pytest.mark.long
def test_a_verified_kernel_among_wrong_and_hanging_ones(openai_double: Any, module: Path, tmp_path: Path):
    out = tmp_path / "kernel.py"
    script = [answer(WRONG), answer(HANGING), {"text": "Sorry."}, answer(EXAMPLE_KERNEL)]
    with openai_double(script) as double:
        server = ["--openai-base-url", double.address, "--model", "scripted"]
        done = generated(module, *server, "--budget", "4", "--conversations", "2", "--out", str(out), "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["outcome"] == "improved"
    assert result["statuses"] == {"incorrect": 1, "timeout": 1, "compile_error": 1, "correct": 1}
    assert (result["estimated"], result["speedup_over_compile"]) == (True, None)
    assert result["speedup"] > 1.05
    assert (result["verdict"]["executed_size"], result["verdict"]["full_size"]) == (1024, 1024)
    assert result["tokens"] == {"prompt": 400, "completion": 160}
    assert out.read_text() == result["source"]
    assert "roofline estimate" in out.read_text().split("\n\n")[0]
    assert len([line for line in done.stderr.splitlines() if line.startswith("[")]) == 4
    agree = f"""
import importlib.util, torch
def load(path):
    spec = importlib.util.spec_from_file_location("m", path); m = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(m); return m
problem, kernel = load({str(module)!r}), load({str(out)!r})
(x,) = problem.get_inputs()
torch.testing.assert_close(kernel.ModelNew()(x[:8]), problem.Model()(x[:8]))
print("agree")
"""
    path = tmp_path / "agree.py"
    path.write_text(agree)
    run = subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, env={"TRITON_INTERPRET": "1"}, check=False
    )
    assert run.stdout == "agree\n", run.stderr[-1500:]


def test_the_original_where_nothing_beats_it(openai_double: Any, module: Path, tmp_path: Path):
    out = tmp_path / "kernel.py"
    with openai_double([answer(WRONG)]) as double:
        server = ["--openai-base-url", double.address, "--model", "scripted"]
        done = generated(module, *server, "--budget", "2", "--turns", "1", "--out", str(out))
    assert done.returncode == 3, done.stderr
    assert "no kernel is verified to be faster than the original" in done.stdout
    found = import_file(out)
    assert found.ModelNew is found.Model


@pytest.mark.long
def test_with_a_tester_drafts_cost_tokens_and_not_the_budget(openai_double: Any, module: Path, tmp_path: Path):
    save_tester(TrainedTester(VerdictNetwork(len(LABELS)), FactsOfTester(labels=LABELS, temperature=1.0, trained_on=0)),
                tmp_path / "tester")  # fmt: skip
    out = tmp_path / "kernel.py"
    with openai_double([answer(WRONG), answer(EXAMPLE_KERNEL)]) as double:
        server = ["--openai-base-url", double.address, "--model", "scripted", "--tester", str(tmp_path / "tester")]
        done = generated(module, *server, "--budget", "2", "--turns", "1", "--conversations", "1", "--drafts", "6",
                         "--out", str(out), "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["statuses"] == {"incorrect": 1, "correct": 1}, "neither kernel is judged twice"
    assert result["tokens"] == {"prompt": 1200, "completion": 480}


@pytest.mark.long
def test_a_policys_folder(policy_folder: Path, module: Path, tmp_path: Path):
    out = tmp_path / "kernel.py"
    options = ["--set", "rollout.sampling.max_new_tokens=12", "--set", "rollout.episode.prompt=source"]
    done = generated(module, "--policy", str(policy_folder), *options, "--budget", "3", "--out", str(out), "--json")
    assert done.returncode == 3, done.stderr  # of random weights
    result = json.loads(done.stdout)
    assert (result["judged"], result["outcome"], result["policy"]) == (3, "original", policy_folder.name)
    assert 0 < result["tokens"]["completion"] <= 36


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fused.py", "--model", "m"], "belong together"),
        (["fused.py", "--policy", "nowhere"], "--policy: no such folder: nowhere"),
        (["fused.py", "--policy", "."], "expected a Hugging Face folder"),
        (["other.py", "--policy", "."], "missing: get_init_inputs"),
        (["fused.py", "--policy", ".", "--out", "."], "--out: .: expected the path of a file"),
        (["fused.py", "--policy", ".", "--openai-base-url", "http://h", "--model", "m"], "expected one of them"),
        (["fused.py", "--policy", ".", "--drafts", "4"], "--drafts: expected --tester as well"),
        (["fused.py", "--policy", ".", "--tester", "nowhere"], "nowhere: expected a tester of `kernelmill tester`"),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str], words: str, module: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from flows.cli.main import run

    monkeypatch.chdir(module.parent)
    (module.parent / "other.py").write_text("class Model: pass\ndef get_inputs(): pass\n")
    assert run(["generate", *arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert words in line
