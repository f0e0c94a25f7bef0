"""The MCP server: its tools through the SDK's own client, in this process and over the pipes of `kernelmill serve mcp`."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp.server.mcpserver", reason="mcp 2 is not installed (extra `mcp`)")

from mcp import StdioServerParameters
from mcp.client.client import Client
from mcp.client.stdio import stdio_client

from extras.adapters.mcp import kernel_server, summary
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM
from kernels_eval.verdict import Resources, Status, TimingSource, Verdict, fault


class OneVerdict:
    def __init__(self, verdict: Verdict) -> None:
        self._verdict = verdict
        self.asked: list[Any] = []

    async def evaluate_async(self, problem: Any, kernel_source: str, backend: str | None = None) -> Verdict:
        self.asked.append((problem.source, kernel_source, backend))
        return self._verdict


FAST = Verdict(
    status=Status.CORRECT, compiled=True, correct=True, speedup=2.5, candidate_ms=0.2, reference_ms=0.5, hardware="h100",
    timing_source=TimingSource.ROOFLINE, resources=(Resources(kernel="k", architecture="sm90", registers=32, spills=0),),
)  # fmt: skip
WRONG = Verdict(status=Status.INCORRECT, compiled=True, error_category="wrong_values", error_message="at (0, 1)")


def called(server: Any, tool: str, **arguments: Any) -> Any:
    async def call() -> Any:
        async with Client(server) as client:
            assert {one.name for one in (await client.list_tools()).tools} == {
                "judge_kernel",
                "judge_files",
                "inspect_kernel",
            }
            return await client.call_tool(tool, arguments)

    return asyncio.run(call())


def test_a_verdict_in_words_and_as_data(tmp_path: Path):
    judge = OneVerdict(FAST)
    sources = {"problem_source": EXAMPLE_PROBLEM, "kernel_source": "k"}
    told = called(kernel_server(judge, tmp_path), "judge_kernel", **sources, backend="cuda")
    assert not told.is_error
    assert told.content[0].text.splitlines()[:2] == [
        "correct",
        "speed-up 2.50 (roofline, h100): 0.2 ms, reference 0.5 ms",
    ]
    assert judge.asked == [(EXAMPLE_PROBLEM, "k", "cuda")]
    found = called(kernel_server(judge, tmp_path), "inspect_kernel", **sources)
    assert Verdict.model_validate(found.structured_content) == FAST
    assert summary(WRONG) == "incorrect\nwrong_values: at (0, 1)"


def test_files_are_read_below_the_folder_alone(tmp_path: Path):
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "problem.py").write_text(EXAMPLE_PROBLEM)
    (folder / "kernel.py").write_text("the kernel")
    (tmp_path / "secret.py").write_text("secret")
    (folder / "link.py").symlink_to(tmp_path / "secret.py")
    judge = OneVerdict(WRONG)
    server = kernel_server(judge, folder)
    assert not called(server, "judge_files", problem_path="problem.py", kernel_path="kernel.py").is_error
    for outside in ("../secret.py", str(tmp_path / "secret.py"), "link.py", "nowhere.py"):
        assert called(server, "judge_files", problem_path="problem.py", kernel_path=outside).is_error
    assert [kernel for _, kernel, _ in judge.asked] == ["the kernel"]


@pytest.mark.parametrize(
    ("judge", "problem", "words"),
    [(OneVerdict(fault("judge_fault", "lost worker")), EXAMPLE_PROBLEM, "not judged: judge_fault: lost worker"),
     (OneVerdict(FAST), "x = 1", "missing: Model")],
)  # fmt: skip
def test_a_fault_or_a_bad_problem_is_an_error_and_no_verdict(tmp_path: Path, judge: Any, problem: str, words: str):
    told = called(kernel_server(judge, tmp_path), "judge_kernel", problem_source=problem, kernel_source="k")
    assert told.is_error
    assert words in told.content[0].text


def test_over_pipes_with_the_real_judge(tmp_path: Path):
    """Nothing that the judge's processes print gets between the protocol's lines."""

    async def call() -> Any:
        arguments = ["-m", "flows.cli.main", "serve", "mcp", "--workers", "1", "--set", "judge.compile=never"]
        server = StdioServerParameters(command=sys.executable, args=arguments, cwd=Path(__file__).parents[4])
        async with Client(stdio_client(server)) as client:
            sources = {"problem_source": EXAMPLE_PROBLEM, "kernel_source": EXAMPLE_KERNEL}
            right = await client.call_tool("inspect_kernel", sources)
            printing = sources | {"kernel_source": 'print("noise", flush=True)\n' + EXAMPLE_KERNEL}
            return right, await client.call_tool("judge_kernel", printing)

    right, printing = asyncio.run(call())
    assert right.structured_content["status"] == "correct"
    assert not printing.is_error
    assert printing.content[0].text.startswith("correct")
