"""Messages, and families of chat templates. A family's form of a message decides which text is trained.

A family states, piece by piece, the text that its templates write. `conversation_pieces` refuses a conversation whose
rendered text does not end in exactly these pieces. Text that the template writes before the first message (a
beginning-of-text token, a default system prompt, a date) is never trained.

Families, and their common names:
- `chatml`: this project's own tokenizer: `<|im_start|>role\\n … <|im_end|>`, nothing between messages;
- `qwen` (also `qwen2.5`): the same, with a newline after each message;
- `qwen3`: as `qwen`; reasoning in `<think> … </think>` is dropped from answers before the last question, and the last
  answer always has a reasoning block, an empty one if it came without;
- `llama3` (also `llama`, `llama3.1`, `kernelllm`): `<|start_header_id|>role<|end_header_id|>\\n\\n … <|eot_id|>`, white
  space around the content removed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from jinja2 import TemplateError

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel


class Role(StrEnum):
    """Author of a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Message(FrozenModel):
    """One message of a conversation."""

    role: Role
    content: str
    trained: bool = False
    """True: SFT's loss is on this message (its content and its end-of-turn token)."""


THINK_START = "<think>"
THINK_END = "</think>"
_EMPTY_THOUGHT = f"{THINK_START}\n\n{THINK_END}\n\n"


@dataclass(frozen=True, slots=True)
class TemplateFamily:
    """Form of a family's messages: `{opening}{role}{header_end}{content}{end_of_turn}{separator}` a message."""

    name: str
    opening: str
    header_end: str
    end_of_turn: str
    separator: str = ""
    trims: bool = False
    """White space around the content is removed."""
    reasons: bool = False
    """Reasoning is a separate part: see `qwen3` above."""
    opens_thought: bool = False
    """The generation prompt opens the reasoning (models that always reason): the tag belongs to the prompt."""

    def header(self, role: Role) -> str:
        """Return the text before a message's content."""
        return f"{self.opening}{role.value}{self.header_end}"

    def content(self, messages: Sequence[Message], index: int) -> str:
        """Return the template's form of one message's content."""
        message = messages[index]
        if self.trims:
            return message.content.strip()
        if not self.reasons or message.role is not Role.ASSISTANT:
            return message.content
        thought, answer = split_thought(message.content)
        if any(later.role is Role.USER for later in messages[index + 1 :]):
            return answer
        # The last answer. If another answer follows it, its reasoning block is only written if it has one.
        if thought or index == len(messages) - 1:
            return f"{THINK_START}\n{thought}\n{THINK_END}\n\n" + answer.lstrip("\n")
        return answer


CHATML = TemplateFamily("chatml", "<|im_start|>", "\n", "<|im_end|>")
QWEN = TemplateFamily("qwen", "<|im_start|>", "\n", "<|im_end|>", separator="\n")
QWEN3 = TemplateFamily("qwen3", "<|im_start|>", "\n", "<|im_end|>", separator="\n", reasons=True)
LLAMA3 = TemplateFamily("llama3", "<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>", trims=True)

FAMILIES: dict[str, TemplateFamily] = {
    "chatml": CHATML,
    "qwen": QWEN,
    "qwen2.5": QWEN,
    "qwen3": QWEN3,
    "llama3": LLAMA3,
    "llama": LLAMA3,
    "llama3.1": LLAMA3,
    "kernelllm": LLAMA3,
}
"""By every common name."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a rendered conversation."""

    text: str
    trained: bool


def split_thought(content: str) -> tuple[str, str]:
    """Return (reasoning, answer) as the templates of reasoning models cut a content; ("", content) where none ended."""
    if THINK_END not in content:
        return "", content
    thought = content.split(THINK_END)[0].rstrip("\n").split(THINK_START)[-1].strip("\n")
    return thought, content.split(THINK_END)[-1].lstrip("\n")


def with_thought(thought: str, answer: str) -> str:
    """Return the content of an answer with its reasoning, which `split_thought` undoes; no tag stays in the reasoning.

    The answer alone if there is no reasoning.
    """
    thought = thought.replace(THINK_START, "").replace(THINK_END, "").strip()
    return f"{THINK_START}\n{thought}\n{THINK_END}\n\n{answer}" if thought else answer


def recognised_family(tokenizer: Any, name: str | None = None) -> TemplateFamily | None:
    """Return the family of a tokenizer's chat template, recognised by its output; None if it is of no known one.

    Raises InputError if it is not of the one called `name`.
    """
    if name is not None and name not in FAMILIES:
        raise InputError(f"chat template: expected one of {', '.join(sorted(FAMILIES))}, found {name!r}")
    known = {family.name: family for family in FAMILIES.values()}.values()
    for family in known if name is None else [FAMILIES[name]]:
        if all(_writes(family, tokenizer, probe) for probe in _PROBES):
            return replace(family, opens_thought=family.reasons and _opens_thought(tokenizer))
    if name is None:
        return None
    raise InputError(
        f"chat template of {getattr(tokenizer, 'name_or_path', '') or 'the tokenizer'}: expected the family {name}, "
        "found one that writes conversations in another way"
    )


def conversation_pieces(family: TemplateFamily, text: str, messages: Sequence[Message]) -> list[Piece]:
    """Cut a rendered conversation into its pieces; trained pieces are those that a policy would have sampled.

    Raises InputError if the template's text is not of its family's form.
    """
    pieces = _body_pieces(family, messages)
    body = "".join(piece.text for piece in pieces)
    if not text.endswith(body):
        raise InputError(
            f"chat template: expected the form of the family {family.name}, found {_difference(text, body)}"
        )
    return [Piece(text[: len(text) - len(body)], trained=False), *pieces]


def _body_pieces(family: TemplateFamily, messages: Sequence[Message]) -> list[Piece]:
    """Return the pieces of all messages but a system prompt at the beginning, which templates may change."""
    first = 1 if messages and messages[0].role is Role.SYSTEM else 0
    return [piece for index in range(first, len(messages)) for piece in _message_pieces(family, messages, index)]


def _message_pieces(family: TemplateFamily, messages: Sequence[Message], index: int) -> list[Piece]:
    message = messages[index]
    header, content = family.header(message.role), family.content(messages, index)
    if family.reasons and message.trained:
        _check_thought(message, content, index)
        if content.startswith(_EMPTY_THOUGHT):
            # If not asked to reason, the policy finds the empty reasoning block in its prompt and never samples it.
            header, content = header + _EMPTY_THOUGHT, content.removeprefix(_EMPTY_THOUGHT)
        elif family.opens_thought:
            header, content = header + f"{THINK_START}\n", content.removeprefix(f"{THINK_START}\n")
    if message.trained and not content.strip():
        raise InputError(f"message {index}: expected content to learn, found an empty trained message")
    return [
        Piece(header, trained=False),
        Piece(content + family.end_of_turn, message.trained),
        Piece(family.separator, trained=False),
    ]


def _check_thought(message: Message, written: str, index: int) -> None:
    if THINK_END not in message.content:
        if THINK_START in message.content:
            raise InputError(f"message {index}: expected the end of its reasoning ({THINK_END}), found none")
        return
    thought, _ = split_thought(message.content)
    if thought and THINK_END not in written:
        raise InputError(
            f"message {index}: the chat template drops the reasoning of an answer that is not the last; "
            "train on conversations that end with the trained answer"
        )


def _writes(family: TemplateFamily, tokenizer: Any, messages: Sequence[Message]) -> bool:
    try:
        text = tokenizer.apply_chat_template(
            [{"role": message.role.value, "content": message.content} for message in messages], tokenize=False
        )
    except (TemplateError, TypeError, ValueError):  # e.g. a template that takes no system prompt
        return False
    body = "".join(piece.text for piece in _body_pieces(family, messages))
    end_of_turn = tokenizer.convert_tokens_to_ids(family.end_of_turn)
    return str(text).endswith(body) and end_of_turn not in (None, tokenizer.unk_token_id)


def _opens_thought(tokenizer: Any) -> bool:
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "one"}], tokenize=False, add_generation_prompt=True
    )
    return str(prompt).endswith(f"{THINK_START}\n")


def _difference(text: str, body: str) -> str:
    """Return the last difference of two texts."""
    shorter = min(len(text), len(body))
    same = next((n for n in range(shorter) if text[-1 - n] != body[-1 - n]), shorter)
    found, expected = text[: len(text) - same][-40:], body[: len(body) - same][-40:]
    return f"{found!r} where {expected!r} was expected"


def _probe(*contents: str, system: str | None = None) -> list[Message]:
    asked = [Message(role=Role.SYSTEM, content=system)] if system else []
    roles = (Role.USER, Role.ASSISTANT)
    return asked + [Message(role=roles[place % 2], content=content) for place, content in enumerate(contents)]


_PROBES = (
    _probe(" one ", " two ", "three\n", "four"),
    _probe("one", f"{THINK_START}\ntwo\n{THINK_END}\n\nthree", "four", f"{THINK_START}\nfive\n{THINK_END}\n\nsix"),
    _probe("one", "two", "three", system="zero"),
)
"""Conversations that tell the families apart: white space, reasoning early and late, a system prompt."""
