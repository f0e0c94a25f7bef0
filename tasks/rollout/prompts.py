"""Prompt messages: the problem, and on later turns the policy's own kernels with the judge's feedback.

SFT writes its conversations with the same functions: the policy is trained on the messages that it gets in rollouts.

Prompt styles are functions (problem, language, example) -> text: `instruct` explains the task (pretrained models);
`source` is the problem's source alone (small models trained from scratch).
`prompt_template` and `retry_template` stand in place of the style's requests.

Compression: if a prompt has no room for the whole history, `compressed` takes the first of these that fits:

1. The newest turn without its reasoning; of older turns the kernel and a one-line verdict; the oldest left out one by
   one.
2. Of the newest turn, too, only the kernel and a one-line verdict.
3. The one-line verdict alone, if the kernel itself is too long.
4. Nothing: the problem is asked as on the first turn.
"""

import re
from collections.abc import Callable, Iterator, Sequence

from kernels_eval.config import JudgeConfig
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.verdict import Verdict
from tasks.models.chat_templates import Message, Role
from tasks.rollout.config import PROMPT, EpisodeConfig
from tasks.rollout.feedback import brief, feedback_text
from tasks.rollout.kernel_extraction import without_reasoning
from tasks.rollout.prompt_examples import EXAMPLES, LANGUAGES
from tasks.rollout.prompt_texts import filled


class HistoryTurn(FrozenModel):
    """An earlier turn of the same episode."""

    response_text: str
    kernel_source: str | None
    """None if the response held no kernel."""
    verdict: Verdict
    reward: float
    """Reward of the verdict, without terms on the answer (kernels_eval.rewards)."""
    shortened: bool = False
    """True: the feedback is the verdict in one line (see Compression above)."""


def prompt_messages(
    problem_source: str, history: Sequence[HistoryTurn], episode: EpisodeConfig, backend: str = "triton"
) -> list[Message]:
    """Return the conversation up to the policy's next kernel.

    The messages for a history continue those for any prefix of it: earlier messages are never rewritten. Raises
    InputError if style `instruct` has no instructions for this back end.
    """
    messages = [
        *system_messages(episode, backend),
        Message(role=Role.USER, content=first_request(problem_source, episode, backend)),
    ]
    for turn in history:
        if turn.shortened:
            told = _verdict_line(turn.verdict, episode, backend)
        else:
            feedback = feedback_text(turn.verdict, turn.reward, episode.feedback)
            told = next_request(turn.verdict, feedback, episode, backend)
        messages.append(Message(role=Role.ASSISTANT, content=turn.response_text))
        messages.append(Message(role=Role.USER, content=told))
    return messages


def answer_text(kernel_source: str) -> str:
    """Return the kernel as an answer: one fenced Python block and nothing else; `extract_kernel` undoes it."""
    longest = max((len(run) for run in re.findall(r"^[ \t]*(`{3,})", kernel_source, re.MULTILINE)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}python\n{kernel_source.removesuffix(chr(10))}\n{fence}"


def judge_for(episode: EpisodeConfig, judge: JudgeConfig) -> JudgeConfig:
    """Return the judge's settings for a policy that gets this feedback: messages in prompts hold no secret draws."""
    reads_no_message = episode.feedback in ("brief", "none")
    return judge if reads_no_message else judge.model_copy(update={"public_messages": True})


def system_messages(episode: EpisodeConfig, backend: str) -> list[Message]:
    """Return the user's system message; nothing if there is none."""
    if episode.system_message is None:
        return []
    content = filled(episode.system_message, {"language": LANGUAGES.get(backend, backend)})
    return [Message(role=Role.SYSTEM, content=content)]


def first_request(problem_source: str, episode: EpisodeConfig, backend: str) -> str:
    """Return the request for a first kernel. Raises InputError if style `instruct` has none for this back end."""
    source = problem_source.strip("\n") + "\n"
    language = LANGUAGES.get(backend, backend)
    if episode.prompt_template is not None:
        values = {"problem": source.removesuffix("\n"), "language": language, "example": EXAMPLES.get(backend, "")}
        return filled(episode.prompt_template, values)
    if episode.prompt == "instruct" and backend not in LANGUAGES:
        raise InputError(
            f"rollout.episode.prompt: instruct: there are instructions for {', '.join(LANGUAGES)}, "
            f"none for judge.backend = {backend}; write them in tasks/rollout/prompt_examples.py, or set "
            "rollout.episode.prompt to source or to a function of your own, or a rollout.episode.prompt_template"
        )
    found = PROMPT.load(episode.prompt)(source, language, EXAMPLES.get(backend, ""))
    if not isinstance(found, str):
        raise InputError(f"rollout.episode.prompt: {episode.prompt} returned {type(found).__name__}, expected text")
    return found


def source(problem: str, language: str, example: str) -> str:
    """Return the problem alone."""
    return problem


def instruct(problem: str, language: str, example: str) -> str:
    """Return the task, its rules, an example of the form, and the problem."""
    return f"""You write fast {language} kernels for PyTorch programs.

Rewrite the program below so that its `forward` is computed by {language} kernels of your own. Rules:
- Define a class `ModelNew` that takes the same constructor and forward arguments as `Model` and returns the same values.
- Every computation of `forward` happens in your kernels; PyTorch may only allocate and reshape tensors.
- Fuse what can be fused: the fewer bytes are moved and the fewer kernels are launched, the faster.
- Answer with one complete Python code block: imports, kernels and `ModelNew`; no tests, no prose.

An example of the form (it adds two tensors):
{example}

The program:
```python
{problem}```"""  # noqa: E501


def next_request(verdict: Verdict, feedback: str, episode: EpisodeConfig, backend: str) -> str:
    """Return the request for a better kernel than the one that the verdict and its feedback are on."""
    wish = "Make it faster" if verdict.correct else "Mend it"
    if episode.retry_template is not None:
        values = {"feedback": feedback, "wish": wish, "language": LANGUAGES.get(backend, backend)}
        return filled(episode.retry_template, values)
    if episode.prompt == "source":
        return feedback or "retry"
    if not feedback:
        return "Write another version. Answer with one complete Python code block."
    return f"{feedback}\n\n{wish}. Answer with one complete Python code block."


def _verdict_line(verdict: Verdict, episode: EpisodeConfig, backend: str) -> str:
    """Return one line on an older turn; without feedback, the same neutral request as a whole turn."""
    if episode.feedback == "none":
        return next_request(verdict, "", episode, backend)
    return ", ".join(brief(verdict, 0.0).split("\n"))


NO_KERNEL = "(an answer without a kernel)"
LEFT_OUT = "(a kernel that is too long to be shown again)"
UNFINISHED = "(reasoning that did not come to an end)"


def compressed(history: Sequence[HistoryTurn], fits: Callable[[Sequence[HistoryTurn]], bool]) -> list[HistoryTurn]:
    """Return the least compressed history that fits; `history` has at least one turn."""
    return next((rung for rung in ladder(history) if fits(rung)), [])


def ladder(history: Sequence[HistoryTurn]) -> Iterator[list[HistoryTurn]]:
    """Yield the compressed forms of a history except the empty one, each shorter than the one before."""
    older, newest = [_kernel_alone(turn) for turn in history[:-1]], history[-1]
    for left_out in range(len(older) + 1):
        yield [*older[left_out:], _without_reasoning(newest)]
    yield [_kernel_alone(newest)]
    yield [newest.model_copy(update={"response_text": LEFT_OUT, "shortened": True})]


def _without_reasoning(turn: HistoryTurn) -> HistoryTurn:
    answer = without_reasoning(turn.response_text)
    text = UNFINISHED if answer is None else answer if answer == turn.response_text else answer.strip("\n")
    return turn.model_copy(update={"response_text": text})


def _kernel_alone(turn: HistoryTurn) -> HistoryTurn:
    text = NO_KERNEL if turn.kernel_source is None else answer_text(turn.kernel_source)
    return turn.model_copy(update={"response_text": text, "shortened": True})
