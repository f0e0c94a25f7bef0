"""The server's settings."""

from pydantic import Field

from kernels_eval.frozen import FrozenModel

TOKEN_VARIABLE = "KERNELMILL_JUDGE_TOKEN"
"""Environment variable with the bearer token that clients must send; unset or empty: none is asked for."""


class ServerConfig(FrozenModel):
    """How the judge is served over HTTP."""

    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = Field(default=18188, ge=0, le=65535)
    """0: a free one."""
    queue_limit: int = Field(default=1024, ge=1)
    """Kernels under way or waiting, of all clients together; more are refused with 429."""
    max_problem_bytes: int = Field(default=64 << 10, ge=1)
    """Length of a problem's source. It is parsed in the server's own process, which answers nothing else meanwhile."""
    max_kernel_bytes: int = Field(default=256 << 10, ge=1)
    """Length of a kernel's source."""
    max_body_bytes: int = Field(default=16 << 20, ge=1)
    """Length of a request."""
    body_timeout_s: float = Field(default=30.0, gt=0)
    """Time that a client has for sending its request."""
    shutdown_s: float = Field(default=20.0, ge=0)
    """Time that running evaluations have to end once the server is told to stop; waiting ones are refused at once."""
