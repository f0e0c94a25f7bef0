"""The skill for coding agents: the head that agents read, and tools and fields that exist."""

import re
from pathlib import Path

import yaml

from kernels_eval.verdict import Status, Verdict

ROOT = Path(__file__).parents[3]
SKILL = (ROOT / "docs" / "skills" / "kernelmill" / "SKILL.md").read_text(encoding="utf-8")


def test_the_head_says_when_to_use_it() -> None:
    _, head, _ = SKILL.split("---\n", 2)
    found = yaml.safe_load(head)
    assert found["name"] == "kernelmill"
    assert re.fullmatch(r"[a-z0-9-]{1,64}", found["name"])
    assert 40 < len(found["description"]) <= 1024
    assert "Use it when" in found["description"]


def test_statuses_fields_and_tools_exist() -> None:
    listed = re.search(r"Read `status` first: (.*?)\.\s+`error_category`", SKILL, re.DOTALL)
    assert listed is not None
    named = set(re.findall(r"`(\w+)`", listed[1]))
    assert named | {"infrastructure_error"} == {status.value for status in Status}
    for field in ("error_category", "rejection_reason", "error_message", "speedup", "timing_source", "executed_size"):
        assert f"`{field}`" in SKILL
        assert field in Verdict.model_fields
    server = (ROOT / "extras" / "adapters" / "mcp.py").read_text(encoding="utf-8")
    for tool in re.findall(r"`((?:judge|inspect)_\w+)`", SKILL):
        assert f"async def {tool}(" in server
