"""Chat templates of no known family: proved by rendering probes before anything is trained, else refused.

A trained answer is what the policy would sample: the text that the template writes from its own generation prompt to
the token that ends the turn. The probes, conversations of several turns, must show that the template continues its
generation prompt, keeps the answer's words, and ends every answer with special tokens, the same each time. Every
conversation that is encoded is checked again.

Templates that rewrite earlier text when the conversation goes on (drop reasoning, end the last answer in another way)
get one sample for each trained answer, as rollouts see them; others one sample for the whole conversation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from jinja2 import TemplateError

from kernels_eval.errors import InputError, first_line
from tasks.models.chat_templates import THINK_END, THINK_START, Message, Piece, Role, split_thought

Render = Callable[[Sequence[Message], bool, bool], str]
"""Function of the messages, whether the generation prompt follows, and whether reasoning is asked for."""
_OPENINGS = (f"{THINK_START}\n", THINK_START)
_CLOSED = f"\n{THINK_END}\n\n"


@dataclass(frozen=True, slots=True)
class GenericTemplate:
    """Facts about a template that the probes have proved."""

    end_of_turn: str
    """Special token (or tokens) that ends an answer, or begins the next message of templates that end none."""
    rewrites: bool
    """Earlier text changes when the conversation goes on."""
    channels: bool
    """Special tokens stand between the generation prompt and the answer: reasoning has a channel of its own."""
    name: str = "generic"


def find_generic_template(render: Render, special: Sequence[str]) -> GenericTemplate:
    """Return what the probes prove. Raises InputError with the reason if the template is not usable.

    `special`: texts of the tokenizer's special tokens, longer ones first.
    """
    try:
        end = _end_of_turn(render, special)
        lead = _continuation(render, _PROBE[:2])[1].partition(_PROBE[1].content)[0]
        template = GenericTemplate(end, rewrites=False, channels=any(token in lead for token in special))
        answers = [_answer(template, render, _PROBE[: last + 1]) for last in range(1, len(_PROBE), 2)]
    except (TemplateError, TypeError, ValueError, KeyError) as error:
        raise InputError(f"it fails on a conversation of several turns: {first_line(error)}") from error
    continued = all(later[0].startswith(prompt + answer) for (prompt, answer), later in pairwise(answers))
    return replace(template, rewrites=not continued)


def samples_of(template: GenericTemplate, messages: Sequence[Message]) -> list[Sequence[Message]]:
    """Cut a conversation into samples: up to its last trained answer, or up to each, only the last one trained."""
    trained = [index for index, message in enumerate(messages) if message.trained]
    if not template.rewrites and not any(split_thought(messages[index].content)[0] for index in trained):
        return [messages[: trained[-1] + 1]] if trained else [messages]
    return [
        [message.model_copy(update={"trained": place == last}) for place, message in enumerate(messages[: last + 1])]
        for last in trained
    ]


def generic_pieces(template: GenericTemplate, render: Render, messages: Sequence[Message]) -> list[Piece]:
    """Return the pieces of a conversation up to its last trained answer.

    Raises InputError if the template changes an answer, or rewrites text before the last one.
    """
    text, pieces = "", list[Piece]()
    for index, message in enumerate(messages):
        if not message.trained:
            continue
        try:
            prompt, answer = _answer(template, render, messages[: index + 1])
        except TemplateError as error:
            raise InputError(f"message {index}: the chat template fails: {first_line(error)}") from error
        if not prompt.startswith(text):
            raise InputError(f"message {index}: the template rewrites an earlier answer; train one answer a sample")
        pieces += [Piece(prompt[len(text) :], trained=False), Piece(answer, trained=True)]
        text = prompt + answer
    return pieces


def _answer(template: GenericTemplate, render: Render, messages: Sequence[Message]) -> tuple[str, str]:
    """Return the prompt before the last message, and the text that the policy would sample there."""
    place = f"message {len(messages) - 1}"
    thought, content = split_thought(messages[-1].content)
    if not content.strip():
        raise InputError(f"{place}: expected content to learn, found an empty trained message")
    if THINK_START in content:
        raise InputError(f"{place}: expected the end of its reasoning ({THINK_END}), found none")
    prompt, shown = _continuation(render, messages)
    written = shown[: shown.rfind(template.end_of_turn)] if template.end_of_turn in shown else shown
    lead = written.rstrip().removesuffix(content.strip())
    if lead == written.rstrip():
        raise InputError(f"{place}: the template changes the answer: found {shown[:60]!r}")
    answer = written + template.end_of_turn
    if thought and (lead.count(THINK_END) > 1 or (template.channels and THINK_END in lead)):
        raise InputError(f"{place}: the template writes an answer's reasoning into the answer itself")
    if not _opening(prompt) or THINK_END in lead:
        if thought.strip() in lead:
            return prompt, answer
        if not _opening(prompt) or lead.strip() != THINK_END:
            raise InputError(f"{place}: the template drops an answer's reasoning, and its prompt opens none")
        return prompt, thought + answer
    # The prompt opens reasoning of which the template writes nothing back, not even its end.
    if thought:
        return prompt, thought + _CLOSED + answer.lstrip("\n")
    return prompt + _CLOSED, answer


def _continuation(render: Render, messages: Sequence[Message]) -> tuple[str, str]:
    """Return the generation prompt before the last message, and the text of the template from there."""
    thinking = bool(split_thought(messages[-1].content)[0])
    prompt = render(messages[:-1], True, thinking)
    whole = render(messages, False, thinking)
    base = prompt if whole.startswith(prompt) else prompt.removesuffix(_opening(prompt))
    if not whole.startswith(base):
        raise InputError("the template does not continue its own generation prompt")
    return prompt, whole[len(base) :]


def _opening(prompt: str) -> str:
    """Return the end of a generation prompt that opens reasoning, or nothing."""
    return next((opening for opening in _OPENINGS if prompt.endswith(opening)), "")


def _end_of_turn(render: Render, special: Sequence[str]) -> str:
    content = _PROBE[1].content
    newest, earlier = (render(_PROBE[:count], False, False).partition(content)[2] for count in (2, 4))
    after = newest if newest.strip() else earlier
    first = _leading_token(after, special)
    if not first:
        raise InputError(f"no special token ends an answer: found {after[:40]!r} after it")
    # Cohere's answers end in two tokens. What follows an earlier answer alone is the next message's beginning, what
    # follows the newest alone the conversation's end.
    end = first
    while newest.startswith(end) and earlier.startswith(end):
        more = _leading_token(newest[len(end) :], special)
        if not more or not earlier.startswith(end + more):
            break
        end += more
    return end


def _leading_token(text: str, special: Sequence[str]) -> str:
    return next((token for token in special if text.startswith(token)), "")


_PROBE = tuple(
    Message(role=role, content=content)
    for role, content in zip(
        (Role.USER, Role.ASSISTANT) * 3,
        ("first question", "first answer", "second\nquestion", "second\n  answer", "third question?", "third answer!"),
        strict=True,
    )
)
"""A conversation of three turns, with words that no template writes by itself."""
