"""Writers: models that answer a conversation. Messages in, text and its cost in tokens out.

`policy` is a checkpoint in a process of its own, `openai` any server with OpenAI's chat completions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from extras.adapters.kernel_episode import ChatMessage
from kernels_eval.errors import InputError
from tasks.agents.config import SOLVER


@dataclass(frozen=True, slots=True)
class Draft:
    """One answer."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    truncated: bool
    """True: the limit of new tokens was reached."""


class RefusedConversationError(InputError):
    """The model cannot answer this conversation: it leaves no room, or the server refuses the request."""


class Writer(Protocol):
    """A model that can be asked."""

    @property
    def name(self) -> str:
        """Name for people."""
        ...

    @property
    def digest(self) -> str:
        """Digest of everything that decides its answers: weights or model name, and sampling."""
        ...

    async def write(self, messages: Sequence[ChatMessage], seed: int, agent: str = SOLVER) -> Draft:
        """Answer one conversation; many calls may be under way. Survives faults that a retry mends.

        `agent`: of a team's agents, the one that answers; a single model answers for all.
        Raises RefusedConversationError, InfrastructureError if the model does not answer at all.
        """
        ...

    async def close(self) -> None:
        """Stop what runs."""
