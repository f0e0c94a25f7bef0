"""One message of a conversation between the problem's author and the policy."""

from enum import StrEnum

from kernels_eval.frozen import FrozenModel


class Role(StrEnum):
    """Who speaks."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class Message(FrozenModel):
    """What one side says."""

    role: Role
    content: str
    trained: bool = False
    """True: SFT's loss is on this message (its content and its end-of-turn token)."""
