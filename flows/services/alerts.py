"""Automations of a Prefect server: its reaction to runs that fail, and to runs whose process is gone.

The templates lie in `flows/services/automations`. `vanished-runs.yaml` marks a run without heartbeats as Crashed.
`failure-webhook.yaml` sends the JSON object `flow`, `run`, `state`, `message`, `url` if a run fails, crashes or is
cancelled. Its address and token are stored as a secret in a Webhook block.
"""

from pathlib import Path
from typing import Any

import yaml
from pydantic import HttpUrl, TypeAdapter, ValidationError

from kernels_eval.errors import InputError

_TEMPLATES = Path(__file__).parent / "automations"
WEBHOOK_TEMPLATE = _TEMPLATES / "failure-webhook.yaml"
VANISHED_TEMPLATE = _TEMPLATES / "vanished-runs.yaml"
BLOCK_NAME = "kernelmill-failures"
_BLOCK_ID = "{{ WEBHOOK_BLOCK_ID }}"


def load_template(path: Path, block_id: str | None = None) -> dict[str, Any]:
    """Return the automation in a file with the block's id. Raises InputError if it is none or has no place for it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if block_id is not None and _BLOCK_ID not in text:
        raise InputError(f"{path}: expected {_BLOCK_ID} as the block_document_id of an action, found none")
    loaded = yaml.safe_load(text if block_id is None else text.replace(_BLOCK_ID, block_id))
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected an automation, found {type(loaded).__name__}")
    return {str(key): value for key, value in loaded.items()}


def mark_vanished_runs(template: Path = VANISHED_TEMPLATE) -> str:
    """Have the server mark runs without a living process as Crashed; return the automation's id."""
    return _replace_automation(load_template(template))


def check_webhook(url: str, token: str | None = None) -> None:
    """Raise InputError unless `url` is an http(s) address with a host, and the token can be sent in a header."""
    try:
        TypeAdapter(HttpUrl).validate_python(url)
    except ValidationError as error:
        reason = error.errors(include_url=False)[0]["msg"]
        raise InputError(f"the webhook's address: found {url!r}, expected http://… or https://…: {reason}") from error
    if any(character.isspace() for character in url):
        raise InputError(f"the webhook's address: found {url!r}, expected no space in it")
    if token is not None and not (token.isascii() and token.isprintable()):
        raise InputError("the webhook's token: expected printable ASCII characters on one line")


def call_webhook_on_failure(url: str, token: str | None = None) -> str:
    """Have the server call `url` on failures; return the automation's id. `token` is sent as a bearer token.

    Everything is checked before the stored address is replaced.
    """
    from prefect.blocks.webhook import Webhook
    from prefect.types import SecretDict
    from pydantic import SecretStr

    check_webhook(url, token)
    load_template(WEBHOOK_TEMPLATE, "checked before the block is saved")
    headers: dict[str, Any] = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    block: Any = Webhook(method="POST", url=SecretStr(url), headers=SecretDict(headers))
    return _replace_automation(load_template(WEBHOOK_TEMPLATE, str(block.save(BLOCK_NAME, overwrite=True))))


def _replace_automation(content: dict[str, Any]) -> str:
    """Create an automation; only then delete the one that had its name."""
    from prefect.automations import Automation

    automations: Any = Automation
    try:
        old = automations.read(name=str(content["name"]))
    except ValueError:  # none has this name
        old = None
    created = str(automations(**content).create().id)
    if old is not None:
        old.delete()
    return created
