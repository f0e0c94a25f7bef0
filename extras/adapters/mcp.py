"""MCP server on stdin and stdout: an editor's assistant judges the kernels that it writes (`kernelmill serve mcp`).

Tools: `judge_kernel` (verdict, speed, what is wrong), `judge_files` (the same for files below a folder),
`inspect_kernel` (the whole verdict with its evidence). A fault of the machine or a bad problem is a tool error, never a
verdict on the kernel.
"""

# The peer need not be installed where types are checked.
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false, reportUnknownParameterType=false
from pathlib import Path
from typing import Protocol

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from kernels_eval.errors import KernelmillError
from kernels_eval.jsonl import read_source
from kernels_eval.problem import Problem, check_problem_source
from kernels_eval.verdict import Verdict

INSTRUCTIONS = """Judges GPU kernels. A problem is Python source that defines `Model` (an nn.Module), `get_inputs()` and
`get_init_inputs()`; a kernel is Python source that defines `ModelNew` with the same constructor and forward arguments
and computes the result in kernels of its own. Judge a kernel, mend what the verdict says, and judge it again. A
speed-up whose source is `roofline` is an estimate, not a measurement."""


class EditorJudge(Protocol):
    """Interface of the judge that the tools use (`kernels_eval.Judge`, `kernels_eval.server.client.HttpJudge`)."""

    async def evaluate_async(self, problem: Problem, kernel_source: str, backend: str | None = None) -> Verdict:
        """Judge one kernel."""
        ...


def kernel_server(judge: EditorJudge, folder: Path) -> MCPServer:
    """Return the server. `folder`: files outside it are not read."""
    server: MCPServer = MCPServer("kernelmill", instructions=INSTRUCTIONS)

    @server.tool()
    async def judge_kernel(problem_source: str, kernel_source: str, backend: str | None = None) -> str:
        """Judge one kernel: is it right, does it do the work itself, how fast is it; if not, what is wrong.

        `backend`: language of the kernel, `triton`, `cuda`, `tilelang`, `cute` or `hip`; by default the judge's own.
        """
        return summary(await _verdict(judge, problem_source, kernel_source, backend))

    @server.tool()
    async def judge_files(problem_path: str, kernel_path: str, backend: str | None = None) -> str:
        """Judge the kernel of one file against the problem of another; paths are relative to the server's folder."""
        problem, kernel = _text(folder, problem_path), _text(folder, kernel_path)
        return summary(await _verdict(judge, problem, kernel, backend))

    @server.tool()
    async def inspect_kernel(problem_source: str, kernel_source: str, backend: str | None = None) -> Verdict:
        """Judge one kernel and return the whole verdict: times and their source, errors, registers, spills, sizes."""
        return await _verdict(judge, problem_source, kernel_source, backend)

    return server


def summary(verdict: Verdict) -> str:
    """Return a verdict as a few lines of text."""
    lines = [verdict.status.value]
    if verdict.speedup is not None:
        lines.append(
            f"speed-up {verdict.speedup:.2f} ({verdict.timing_source}, {verdict.hardware}): "
            f"{verdict.candidate_ms:.4g} ms, reference {verdict.reference_ms:.4g} ms"
        )
    cause = verdict.rejection_reason or verdict.error_category
    if cause:
        lines.append(f"{cause}: {verdict.error_message or ''}".rstrip(": "))
    lines += [f"warning: {warning}" for warning in verdict.warnings]
    for used in verdict.resources:
        lines.append(
            f"{used.kernel} on {used.architecture}: {used.registers} registers, {used.shared_bytes} bytes of shared "
            f"memory, {used.spills} spills"
        )
    return "\n".join(lines)


async def _verdict(judge: EditorJudge, problem_source: str, kernel_source: str, backend: str | None) -> Verdict:
    try:
        check_problem_source(problem_source, "problem_source")
        problem = Problem(problem_id="problem", source=problem_source)
        verdict = await judge.evaluate_async(problem, kernel_source, backend)
    except KernelmillError as error:
        raise ToolError(str(error)) from error
    if verdict.is_fault:
        raise ToolError(f"the kernel was not judged: {verdict.error_category}: {verdict.error_message}")
    return verdict


def _text(folder: Path, name: str) -> str:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise ToolError(f"{name}: expected a file below {folder}")
    try:
        return read_source(path)
    except KernelmillError as error:
        raise ToolError(str(error)) from error
