"""Answers in the forms in which models write them: fence × thought × surrounding text × order, each with its kernel."""

import ast
import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.answers.kernel import extract_kernel
from tasks.answers.reasoning import without_reasoning
from tasks.rollout.engines import FinishReason
from tasks.rollout.judge_client import no_kernel_verdict

F = "```"
KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        add_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
        return out
"""
DRAFT = KERNEL.replace("1024", "8").replace("@triton.jit\n", "")
SKELETON = "class ModelNew(torch.nn.Module):\n    def forward(self, x):\n        ...\n"
USAGE = "model = ModelNew()\nprint(model(torch.randn(4)))\n"


def indented(text: str, by: str) -> str:
    return "\n".join(by + line if line else line for line in text.split("\n"))


FENCES = {
    "plain": f"{F}python\n{KERNEL}{F}",
    "without a language": f"{F}\n{KERNEL}{F}",
    "py": f"{F}py\n{KERNEL}{F}",
    "Python 3, capital": f"{F}Python3\n{KERNEL}{F}",
    "attributes": f'{F}python title="kernel.py"\n{KERNEL}{F}',
    "a space before the language": f"{F} python\n{KERNEL}{F}",
    "four backticks": f"{F}`python\n{KERNEL}{F}`",
    "tildes": f"~~~python\n{KERNEL}~~~",
    "closed by more": f"{F}python\n{KERNEL}{F}``",
    "white space behind": f"{F}python  \n{KERNEL}{F}   ",
    "indented marks, code not": f"  {F}python\n{KERNEL}  {F}",
    "in a numbered list": "1. The kernel:\n\n" + indented(f"{F}python\n{KERNEL}{F}", "   "),
    "behind a list's sign": f"- {F}python\n" + indented(f"{KERNEL}{F}", "  "),
    "behind a list's number": f"1. {F}python\n" + indented(f"{KERNEL}{F}", "   "),
    "indented by a tab": indented(f"{F}python\n{KERNEL}{F}", "\t"),
    "indented code, marks not": f"{F}python\n{indented(KERNEL, '    ')}{F}",
    "in a quotation": "\n".join(f"> {line}".rstrip() for line in f"{F}python\n{KERNEL}{F}".split("\n")),
    "closed on the last code line": f"{F}python\n{KERNEL.rstrip()}{F}",
    "closed there after a space": f"{F}python\n{KERNEL.rstrip()} {F}",
    "opened behind words": f"Here it is: {F}python\n{KERNEL}{F}",
    "words behind the end": f"{F}python\n{KERNEL}{F} This is the kernel.",
    "code behind the mark": f"{F}python {KERNEL}{F}",
    "begun again": f"{F}python\nimport torch\n{F}python\n{KERNEL}{F}",
    "begun again with a language": f"{F}\n{F}python\n{KERNEL}{F}",
    "a docstring with a fence": f'{F}python\n"""Usage:\n{F}\nModelNew()\n{F}\n"""\n{KERNEL}{F}',
    "a comment with a fence": f"{F}python\n# {F}\n{KERNEL}{F}",
    "a fence's end token": f"{F}python\n{KERNEL}{F}<|im_end|>",
    "in tags": f"<answer>\n{F}python\n{KERNEL}{F}\n</answer>",
    "in tags of its line": f"<answer>{F}python\n{KERNEL}{F}</answer>",
    "a byte order mark": f"{F}python\n\ufeff{KERNEL}{F}",
    "a tag in a comment": f"{F}python\n# after </think>\n{KERNEL}{F}",
    "a tag in a string": f'{F}python\nTAG = "<think> and </think>"\n{KERNEL}{F}',
    "a tag in a docstring": f'{F}python\n"""Notes\n</think>\n"""\n{KERNEL}{F}',
}
OPEN_FENCES = {
    "without an end": f"{F}python\n{KERNEL}",
    "without an end, words behind": f"{F}python\n{KERNEL}\nThis kernel is fast, I think.\n",
    "no fence": KERNEL,
    "no fence, words around": f"Sure, here it is:\n\n{KERNEL}\nIt is fast, I think.\n",
    "no fence, an end token": f"{KERNEL}<|im_end|>",
}
"""Forms that nothing with a fence may follow."""
DRAFTED = f"Maybe\n{F}python\n{DRAFT}{F}\nno."
THOUGHTS = {
    "none": "{answer}",
    "before": f"<think>\n{DRAFTED}\n</think>\n\n{{answer}}",
    "opened by the template": f"{DRAFTED}\n</think>\n\n{{answer}}",
    "on one line": "<think>a</think>{break}{answer}",
    "a draft without an end": f"<think>\nMaybe {F}python\n{DRAFT}\n</think>\n{{answer}}",
    "the end is spoken of": f"<think>\nI close with `</think>` later.\n{DRAFTED}\n</think>\n{{answer}}",
    "behind": f"{{answer}}\n<think>\nCould it be better?\n{DRAFTED}\n</think>\n",
    "behind, without an end": f"{{answer}}\n<think>\nCould it be better?\n{DRAFTED}",
    "twice": f"<think>a</think>\nFirst words.\n<think>\n{DRAFTED}\n</think>\n{{answer}}",
    "thinking": f"<thinking>\n{DRAFTED}\n</thinking>\n{{answer}}",
    "reasoning": f"<reasoning>\n{DRAFTED}\n</reasoning>\n{{answer}}",
    "brackets": f"[THINK]{DRAFTED}\n[/THINK]\n{{answer}}",
    "triangles": f"◁think▷{DRAFTED}\n◁/think▷\n{{answer}}",
    "channels": f"<|channel|>analysis<|message|>{DRAFTED}\n<|end|><|start|>assistant<|channel|>final<|message|>{{break}}{{answer}}",
    "channels without tokens": f"analysisThe user wants a kernel.\n{DRAFTED}\nassistantfinal{{break}}{{answer}}",
    "capital letters": f"<THINK>\n{DRAFTED}\n</THINK>\n{{answer}}",
}
AROUND = {
    "nothing": "{answer}",
    "words": "Here is the kernel.\n\n{answer}\n\nIt fuses everything into one launch: `x` is read once.",
    "a skeleton behind": f"{{answer}}\n\nIts form:\n\n{F}python\n{SKELETON}{F}\n",
    "a skeleton before": f"The form:\n\n{F}python\n{SKELETON}{F}\n\nFilled in:\n\n{{answer}}",
    "usage behind": f"{{answer}}\n\nUse it so:\n\n{F}python\n{USAGE}{F}\n",
    "shell before": f"{F}bash\npip install triton\n{F}\n\n{{answer}}",
    "a heading": "## Answer\n\n{answer}\n\n---\n**Note**: tuned for `BLOCK=1024`.",
}


def written(fence: str, thought: str, around: str) -> str:
    answer = around.replace("{answer}", fence)
    return thought.replace("{break}", "\n").replace("{answer}", answer)


CLOSED_FORMS = {
    f"{names[0]} | {names[1]} | {names[2]}": written(FENCES[names[0]], THOUGHTS[names[1]], AROUND[names[2]])
    for names in itertools.product(FENCES, THOUGHTS, AROUND)
}
FORMS = CLOSED_FORMS | {
    f"{name} | {thought}": written(OPEN_FENCES[name], THOUGHTS[thought], AROUND["nothing"])
    for name in OPEN_FENCES
    for thought in THOUGHTS
    if not thought.startswith("behind")
}


def is_the_kernel(found: str | None) -> bool:
    """True for the kernel, with what stands before it in its block or without."""
    return found is not None and found.endswith(KERNEL) and "\ufeff" not in found and bool(ast.parse(found).body)


def test_there_are_enough_forms() -> None:
    assert len(set(FORMS.values())) >= 200


@pytest.mark.parametrize("fence", [*FENCES, *OPEN_FENCES])
def test_every_form_gives_its_kernel(fence: str) -> None:
    wrong = [name for name in FORMS if name.split(" | ")[0] == fence and not is_the_kernel(extract_kernel(FORMS[name]))]
    assert wrong == []


@given(st.sampled_from(sorted(FORMS)), st.data())
def test_a_cut_answer_never_gives_half_a_kernel(name: str, data: st.DataObject) -> None:
    text = FORMS[name]
    found = extract_kernel(text[: data.draw(st.integers(0, len(text)))], truncated=True)
    assert found is None or found.endswith((KERNEL, DRAFT, SKELETON, USAGE, "pip install triton\n"))


@pytest.mark.parametrize(
    ("text", "truncated", "category"),
    [
        ("I cannot do that.", False, "no_code_block"),
        ("", False, "no_code_block"),
        ("Use `ModelNew` with class ModelNew inside.", False, "no_code_block"),
        (f"{F}python\n{KERNEL[:300]}", True, "truncated_answer"),
        (KERNEL, True, "truncated_answer"),
        (f"<think>\n{DRAFTED}", False, "unfinished_reasoning"),
        (f"<think>\n{DRAFTED}", True, "unfinished_reasoning"),
        (f"<|channel|>analysis<|message|>{DRAFTED}", True, "unfinished_reasoning"),
        (f"<think>\n{DRAFTED}</think>", False, "no_code_block"),
    ],
)
def test_an_answer_without_a_kernel_says_why(text: str, truncated: bool, category: str) -> None:
    assert extract_kernel(text, truncated=truncated) is None
    reason = FinishReason.LENGTH if truncated else FinishReason.STOP
    verdict = no_kernel_verdict(reason, reasoning_ended=without_reasoning(text) is not None)
    assert verdict.error_category == category


def test_a_kernel_with_a_wrong_syntax_is_handed_to_the_judge() -> None:
    broken = KERNEL.replace("def forward(self, x):", "def forward(self, x)")
    assert extract_kernel(f"{F}bash\nls\n{F}\n{F}python\n{broken}{F}\n{F}python\n{USAGE}{F}") == broken
    assert extract_kernel(f"It:\n{F}python\n{broken}") == broken


def test_the_longest_that_launches_is_taken() -> None:
    longer = KERNEL + "\n\ndef helper():\n    return 1\n"
    silent = SKELETON + "\n" * 2 + "x = 1\n" * 400
    for blocks in itertools.permutations((KERNEL, longer, silent)):
        assert extract_kernel("\n".join(f"{F}python\n{block}{F}" for block in blocks)) == longer


@pytest.mark.parametrize(
    "text",
    [
        f"{F}python\nclass ModelNew: pass\n" * 3000,
        f"{F}\n" * 20000 + "ModelNew",
        "ModelNew " + " " * 100_000 + F + " " * 100_000 + "x",
        "<think>" * 30_000 + "ModelNew",
        "</think>\n" * 30_000 + KERNEL,
        "<|a|>" * 30_000 + KERNEL,
        "> " * 30_000 + F + KERNEL,
        f"{F}python\n" + "(" * 50_000 + f"ModelNew\n{F}",
        f"{F}python\n{KERNEL * 40}\n{F}\n" * 20,
    ],
    ids=["opened", "marks", "spaces", "thoughts", "ends", "tokens", "quotations", "nested", "long"],
)
def test_hostile_answers_take_no_time(text: str) -> None:
    started = time.process_time()
    extract_kernel(text)
    assert time.process_time() - started < 5
