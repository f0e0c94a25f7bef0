"""A model behind a server with OpenAI's chat completions, as settings name it."""

import httpx
from pydantic import field_validator

from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.loopback import is_on_loopback

_CONNECT_TIMEOUT_S = 10.0


class ChatModel(FrozenModel):
    """A model behind a server with OpenAI's chat completions."""

    name: str
    """The model's name on that server."""
    base_url: str
    """Usually ends in `/v1`. `OPENAI_API_KEY` is sent if it is set."""

    @field_validator("base_url")
    @classmethod
    def _check(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise ValueError(f"expected an address such as http://127.0.0.1:8000/v1, found {value!r}")
        return value

    @property
    def uri(self) -> str:
        """Name and address, for people."""
        return f"{self.name} at {self.base_url}"

    def check_reachable(self) -> None:
        """Raise InputError if nothing answers at the address; whether the model exists, only a question shows."""
        try:
            address, through_proxy = f"{self.base_url.rstrip('/')}/models", not is_on_loopback(self.base_url)
            httpx.get(address, timeout=_CONNECT_TIMEOUT_S, trust_env=through_proxy)
        except httpx.ConnectError as error:
            raise InputError(f"{self.name}: no server answers at {self.base_url}: {error}") from error
        except httpx.HTTPError:
            return  # it is there: slow, or without this page
