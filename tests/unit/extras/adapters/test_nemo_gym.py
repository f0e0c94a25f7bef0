"""NeMo Gym's own server asks our judge: its HTTP application, its requests and its session; the policy is a text."""

from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("nemo_gym", reason="nemo-gym is not installed (Python 3.12 or newer)")

from fastapi.testclient import TestClient
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import ServerClient

from extras.adapters.nemo_gym import KernelServer, KernelServerConfig, nemo_gym_rows
from extras.adapters.scoring import Scorer


@pytest.fixture
def client(judge: Any) -> Any:
    config = KernelServerConfig(host="127.0.0.1", port=1, entrypoint="app.py", name="kernelmill")
    server = KernelServer(config=config, server_client=MagicMock(spec=ServerClient))
    server.__dict__["scorer"] = Scorer(judge)
    with TestClient(server.setup_webserver()) as found:
        yield found
    server.scorer.close()


def asked(text: str, source: str, **changes: Any) -> dict[str, Any]:
    """Return the body that an agent posts: a row, and the model's response."""
    (row,) = nemo_gym_rows([{"prompt": [{"role": "user", "content": "?"}], "problem_id": "p", "problem_source": source,
                             "level": 2}])  # fmt: skip
    content = {"type": "output_text", "text": text, "annotations": []}
    message = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [content]}
    response = {
        "id": "r", "created_at": 0.0, "model": "policy", "object": "response", "output": [message],
        "parallel_tool_calls": False, "tool_choice": "none", "tools": [], **changes,
    }  # fmt: skip
    return {**row, "response": NeMoGymResponse.model_validate(response).model_dump()}


def test_an_answer_gets_its_reward_and_the_verdict(client: TestClient, answer: Any, problem_source: str) -> None:
    assert client.post("/seed_session", json={}).status_code == 200
    good = client.post("/verify", json=asked(answer("speedup 2.0"), problem_source)).json()
    bad = client.post("/verify", json=asked(answer("incorrect"), problem_source)).json()
    none = client.post("/verify", json=asked("I do not know.", problem_source)).json()
    assert good["reward"] > bad["reward"] >= none["reward"]
    assert (good["status"], good["correct"], good["speedup"]) == ("correct", True, 2.0)
    assert (good["problem_id"], good["level"]) == ("p", 2)
    assert bad["message"] == "0 ≠ 1"


def test_a_fault_of_the_machine_is_no_reward(client: TestClient, answer: Any, problem_source: str) -> None:
    for remark in ("fault", "raises"):
        found = client.post("/verify", json=asked(answer(remark), problem_source))
        assert found.status_code == 503
        assert "reward" not in found.json()


def test_a_problem_that_is_none_is_said(client: TestClient, answer: Any) -> None:
    found = client.post("/verify", json=asked(answer("speedup 2.0"), "x = 1"))
    assert found.status_code == 422
    assert "Model" in found.json()["detail"]


def test_an_answer_that_was_cut_off_has_no_kernel(client: TestClient, problem_source: str) -> None:
    text = "```python\n# speedup 2.0\nclass ModelNew: ...\n"
    cut = {"incomplete_details": {"reason": "max_output_tokens"}}
    assert client.post("/verify", json=asked(text, problem_source, **cut)).json()["correct"] is False
