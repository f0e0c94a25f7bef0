"""Prompts of agents (`AgentConfig.shown`), and the answer with which an agent stops.

SFT writes its conversations with the same functions. An agent that is shown a kernel gets a conversation of its own,
anew on each of its turns: the problem, the best kernel so far, the judge's feedback on it and its issues.
"""

from collections.abc import Sequence

from kernels_eval.verdict import Verdict
from tasks.agents.config import AgentConfig
from tasks.models.chat_templates import Message, Role
from tasks.rollout.config import EpisodeConfig
from tasks.rollout.feedback import feedback_text
from tasks.rollout.kernel_extraction import without_reasoning
from tasks.rollout.prompt_examples import LANGUAGES
from tasks.rollout.prompts import (
    HistoryTurn,
    answer_text,
    first_request,
    next_request,
    prompt_messages,
    system_messages,
)

STOP = "stop"
"""Answer of an agent that finds the best kernel so far good enough."""
_MOST_KINDS = 2
"""Issues that brief feedback names, by kind: few distinct lines, each can be one token."""


def agent_messages(
    problem_source: str, history: Sequence[HistoryTurn], episode: EpisodeConfig, backend: str, agent: AgentConfig
) -> list[Message]:
    """Return the messages of the agent's next prompt after these turns; InputError as `prompt_messages`."""
    if agent.shown == "history":
        messages = prompt_messages(problem_source, history, episode, backend)
    elif agent.shown == "problem" or not history:
        messages = prompt_messages(problem_source, [], episode, backend)
    else:
        content = _request_to_improve(problem_source, best_turn(history), episode, backend, may_stop=agent.may_stop)
        messages = [*system_messages(episode, backend), Message(role=Role.USER, content=content)]
    if not agent.instructions:
        return messages
    place = next(place for place, message in enumerate(messages) if message.role is Role.USER)
    content = f"{agent.instructions.rstrip()}\n\n{messages[place].content}"
    return [*messages[:place], messages[place].model_copy(update={"content": content}), *messages[place + 1 :]]


def best_turn(history: Sequence[HistoryTurn]) -> HistoryTurn:
    """Return the turn of highest reward; of equals the newest, whose feedback is not known yet."""
    return max(reversed(history), key=lambda turn: turn.reward)


def stops(content: str, agent: AgentConfig) -> bool:
    """True if the agent may stop, and the answer (its reasoning apart) says so and nothing else."""
    answer = without_reasoning(content) if agent.may_stop else None
    return answer is not None and answer.strip().strip("`.!").lower() == STOP


def _request_to_improve(
    problem_source: str, given: HistoryTurn, episode: EpisodeConfig, backend: str, *, may_stop: bool
) -> str:
    kernel = "" if given.kernel_source is None else answer_text(given.kernel_source)
    feedback = feedback_text(given.verdict, given.reward, episode.feedback)
    if episode.prompt == "source" and episode.prompt_template is None:
        kinds = () if episode.feedback == "none" else _issue_kinds(given.verdict)
        parts = [problem_source.strip("\n"), kernel, feedback, *kinds]
        return "\n".join(part for part in parts if part) + "\n"
    request = first_request(problem_source, episode, backend)
    language = LANGUAGES.get(backend, backend)
    parts = [request, f"A {language} kernel that was written for it:" if kernel else "", kernel]
    leave = f"If it cannot be made better, answer with the single word {STOP}." if may_stop else ""
    if episode.retry_template is not None:
        parts += [next_request(given.verdict, feedback, episode, backend), leave]
    else:
        wish = "Make it faster" if given.verdict.correct else "Mend it"
        parts += [feedback, f"{wish}: answer with the whole new code block. {leave}".rstrip()]
    return "\n\n".join(part for part in parts if part)


def _issue_kinds(verdict: Verdict) -> tuple[str, ...]:
    return tuple(dict.fromkeys(issue.kind.value for issue in verdict.issues))[:_MOST_KINDS]
