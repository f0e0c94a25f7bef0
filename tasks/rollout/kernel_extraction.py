"""The kernel in a policy's response, and the response without its reasoning (tasks.answers)."""

from tasks.answers.kernel import extract_kernel
from tasks.answers.reasoning import without_reasoning

__all__ = ["extract_kernel", "without_reasoning"]
