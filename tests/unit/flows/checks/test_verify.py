"""`kernelmill verify`: every failure has a fix, and what a run does not need does not fail it."""

import copy
import http.server
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from flows.checks import machine, preflight, toolchain, verify
from flows.checks.preflight import check_before_start
from flows.checks.result import Outcome, failed, note, ok
from flows.cli.main import run
from flows.settings.configuration import RunConfig, check_configuration
from kernels_eval.errors import InputError


def configured(tmp_path: Path, **settings: Any) -> RunConfig:
    return check_configuration({"runs_dir": str(tmp_path / "runs"), **settings}, "here")


@pytest.fixture
def server() -> Iterator[str]:
    class Healthy(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/health" else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Healthy) as listening:
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_this_machine_and_its_packages_are_fine(tmp_path: Path):
    config = configured(tmp_path)
    for check in (machine.python, machine.gpu, machine.disk, verify.ray, verify.engine):
        assert check(config).outcome is Outcome.OK, check(config)
    for check in (verify.settings, verify.problems, verify.checkpoint):
        assert check(config).outcome is Outcome.OK, check(config)
    assert machine.packages(config).outcome is not Outcome.FAILED, machine.packages(config)


@pytest.mark.slow
def test_triton_compiles_here(tmp_path: Path):
    config = configured(tmp_path)
    found = toolchain.triton_compiler(config)
    assert found.outcome is Outcome.OK
    assert "bytes of machine code" in found.found


def test_the_sandbox_names_what_this_machine_lacks(tmp_path: Path):
    found = toolchain.sandbox(configured(tmp_path))
    assert found.outcome in (Outcome.OK, Outcome.NOTE), found
    named = {feature for feature in toolchain.SANDBOX_FEATURES if feature in found.found}
    assert named
    if found.outcome is Outcome.NOTE:
        required = toolchain.sandbox(configured(tmp_path, judge={"require_sandbox": True}))
        assert required.outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("check", "settings", "words"),
    [
        (machine.gpu, {"update": {"gpus_per_rank": 1, "ranks": 3}}, "asks for 3 GPUs"),
        (machine.disk, {"runs_dir": "/proc/nowhere"}, "runs_dir"),
        (verify.ray, {"ray": {"address": f"127.0.0.1:{closed_port()}"}}, "ray.address"),
        (
            verify.engine,
            {"rollout": {"engine": "sglang", "sglang_urls": [f"http://127.0.0.1:{closed_port()}"]}},
            "127.0.0.1",
        ),
        (
            verify.engine,
            {"rollout": {"engine": "sglang", "sglang": {"command": ["/nowhere/python"]}}},
            "/nowhere/python",
        ),
        (
            verify.engine,
            {"rollout": {"engine": "sglang", "sglang": {"command": ["python3", "-m", "no_such_module.x"]}}},
            "no module no_such_module",
        ),
        (verify.settings, {"model": {"heads": 3, "key_value_heads": 2}}, "model.key_value_heads"),
        (verify.problems, {"problems": {"source": "jsonl", "path": "/nowhere"}}, "/nowhere"),
        (verify.checkpoint, {"model": {"pretrained": "/nowhere"}}, "/nowhere"),
        (
            verify.files,
            {
                "problems": {"source": "jsonl", "path": "/a"},
                "model": {"pretrained": "/b"},
                "update": {"deepspeed": "c.json"},
                "validation": {"suites": "d"},
            },
            "problems.path: /a; model.pretrained: /b; update.deepspeed: c.json; validation.suites: d",
        ),
    ],
)
def test_a_failure_says_what_was_found_and_what_to_do(tmp_path: Path, check: Any, settings: dict[str, Any], words: str):
    config = configured(tmp_path, **settings)
    finding = check(config)
    assert finding.outcome is Outcome.FAILED
    assert words in finding.found
    assert finding.fix


def pretrained(folder: Path, tokenizer: Any, chat_template: str | None = None) -> str:
    folder.mkdir()
    tokenizer.save_pretrained(folder)
    if chat_template is not None:
        (folder / "chat_template.jinja").write_text(chat_template)
    (folder / "config.json").write_text('{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3"}')
    save_file({"weight": torch.zeros(1)}, folder / "model.safetensors")
    return str(folder)


def test_the_chat_template_is_compared_with_the_setting(tmp_path: Path, family_tokenizer: Callable[[str], Any]):
    qwen = pretrained(tmp_path / "qwen", family_tokenizer("qwen2.5"))
    phi = pretrained(tmp_path / "phi", family_tokenizer("phi4"))
    for folder, template in ((qwen, None), (qwen, "qwen2.5"), (qwen, "generic"), (phi, None), (phi, "generic")):
        settings = {"pretrained": folder, "template": template}
        assert verify.checkpoint(configured(tmp_path, model=settings)).outcome is Outcome.OK
    for folder, template in ((qwen, "llama3"), (phi, "qwen2.5")):
        config = configured(tmp_path, model={"pretrained": folder, "template": template})
        found = verify.checkpoint(config)
        assert found.outcome is Outcome.FAILED
        assert f"expected the family {template}" in found.found
        with pytest.raises(InputError, match=r"model\.template: chat template of"):
            check_before_start(config)
    plain = pretrained(tmp_path / "plain", family_tokenizer("phi4"), "{{ messages[-1].content }}")
    found = verify.checkpoint(configured(tmp_path, model={"pretrained": plain}))
    assert "its loss mask is not known: no special token ends an answer" in found.found


def test_generation_stops_where_the_template_ends_an_answer(tmp_path: Path, family_tokenizer: Callable[[str], Any]):
    tokenizer = copy.deepcopy(family_tokenizer("qwen2.5"))  # other tests have the same one
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    tokenizer.eos_token = "<|endoftext|>"
    folder = pretrained(tmp_path / "qwen", tokenizer)
    config = configured(tmp_path, model={"pretrained": folder})
    found = verify.checkpoint(config)
    assert found.outcome is Outcome.FAILED
    assert f"ends an answer with token {end} ('<|im_end|>')" in found.found
    assert "('<|endoftext|>'); add it to eos_token_id" in found.found
    with pytest.raises(InputError, match="expected it among those at which generation stops"):
        check_before_start(config)
    Path(folder, "generation_config.json").write_text(f'{{"eos_token_id": [{end}]}}')
    assert verify.checkpoint(config).outcome is Outcome.OK


def test_nvcc_is_missed_only_where_kernels_are_cuda(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert toolchain.nvcc(configured(tmp_path)).outcome is Outcome.NOTE
    for backend in ("cuda", "auto"):
        assert toolchain.nvcc(configured(tmp_path, judge={"backend": backend})).outcome is Outcome.FAILED


def test_named_servers_are_asked_before_a_run(tmp_path: Path, server: str):
    rollout = {"engine": "sglang", "sglang_urls": [server]}
    config = configured(tmp_path, rollout=rollout)
    assert verify.engine(config).outcome is Outcome.OK
    check_before_start(config)
    rollout["sglang_urls"] = [server, f"{server}/elsewhere"]
    with pytest.raises(InputError, match=r"rollout.sglang_urls: .*/elsewhere"):
        check_before_start(configured(tmp_path, rollout=rollout))


def test_a_name_of_a_hub_is_no_missing_file(tmp_path: Path):
    assert verify.files(configured(tmp_path, model={"pretrained": "Qwen/Qwen3-8B"})).outcome is Outcome.OK
    assert verify.files(configured(tmp_path)).outcome is Outcome.OK


@pytest.mark.parametrize(
    ("advantage", "is_named"),
    [("gae", True), ("grpo", False), ("critic_of_mine:with_critic", True), ("nowhere:at_all", False)],
)
def test_a_critic_is_looked_for_where_the_estimator_has_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, advantage: str, is_named: bool
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "critic_of_mine.py").write_text(
        "from tasks.update.doors import estimator\n\n\n"
        "@estimator(compares='nothing', critic=True)\n"
        "def with_critic(rewards, mask, settings, values):\n    return rewards - values, rewards\n"
    )
    update = {"advantage": advantage, "critic": {"pretrained": "/nowhere"}}
    found = verify.files(configured(tmp_path, update=update))
    assert ("update.critic.pretrained: /nowhere" in found.found) is is_named


def test_a_judge_on_a_gpu_is_refused_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("flows.checks.preflight.gpus_here", list)
    config = configured(tmp_path, judge={"device": "cuda"})
    with pytest.raises(InputError, match=r"judge\.device: found cuda, expected auto or cpu"):
        preflight.check_gpus(config)
    preflight.check_gpus(configured(tmp_path, ray={"address": "ray-head:6379"}, judge={"device": "cuda"}))


def test_pairs_alone_take_neither_model_nor_engine_nor_a_gpu_that_does_not_judge_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("flows.checks.preflight.gpus_here", list)
    rollout = {"engine": "sglang", "sglang": {"command": ["/nowhere/python"]}}
    settings = {"judge": {"device": "cuda"}, "model": {"pretrained": "/nowhere"}, "rollout": rollout}
    on_cpus = {"data": {"corpus": "modules", "judge": {"device": "cpu"}}}
    config = configured(tmp_path, **settings, sft=on_cpus)
    check_before_start(config, for_pairs=True)
    with pytest.raises(InputError, match=r"model\.pretrained"):
        check_before_start(config)
    with pytest.raises(InputError, match=r"judge\.device: found cuda"):
        check_before_start(configured(tmp_path, **settings), for_pairs=True)
    of_both = settings | {"judge": {"device": "cuda", "backend": "auto"}, "sft": {"data": {"judge": {"device": "cpu"}}}}
    with pytest.raises(InputError, match=r"judge\.device: found cuda"):
        check_before_start(configured(tmp_path, **of_both), for_pairs=True)
    with pytest.raises(InputError, match=r"sft\.steps: found 0"):
        check_before_start(configured(tmp_path, sft="none", control=False), for_pairs=True)


def test_gpus_that_are_not_there_are_told_before_a_run(tmp_path: Path):
    with pytest.raises(InputError, match=r"asks for 2 GPUs .* found 0"):
        check_before_start(configured(tmp_path, update={"gpus_per_rank": 0.9, "ranks": 2}))


def test_the_command_ends_with_1_where_something_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "run.yaml"
    path.write_text(f"runs_dir: {tmp_path / 'runs'}\n")
    monkeypatch.setattr(verify, "CHECKS", (lambda _: ok("one", "fine"), lambda _: note("two", "so so", "look [here]")))
    assert run(["verify", str(path)]) == 0
    assert "look [here]" in capsys.readouterr().out
    monkeypatch.setattr(verify, "CHECKS", (lambda _: failed("three", "broken", "mend it"),))
    assert run(["verify", str(path)]) == 1
    said = capsys.readouterr().out
    assert "broken" in said
    assert "→ mend it" in said
    assert "1 of 1 checks failed" in said


def test_a_busy_machine_is_not_told_to_install_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(toolchain, "PROGRAM_TIMEOUT_S", 0.01)
    monkeypatch.setattr("os.getloadavg", lambda: (1.0, 1.0, 1.0))
    for check in (toolchain.triton_interpreter, toolchain.triton_compiler, toolchain.sandbox):
        found = check(configured(tmp_path))
        assert found.outcome is Outcome.FAILED
        assert found.found.startswith("not done within 0 s, at a load of 1 on ")
        assert found.fix == "check again when this machine has less to do"


def test_a_busy_machine_has_more_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(toolchain, "PROGRAM_TIMEOUT_S", 1.0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.getloadavg", lambda: (50.0, 50.0, 50.0))
    assert toolchain.run_program([sys.executable, "-c", "import time; time.sleep(2); print('done')"]) == (True, "done")
