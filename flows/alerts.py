"""Tells a webhook when a run fails, crashes or is cancelled: an automation of the Prefect server, from a template.

The template is `deployments/automations/failure-webhook.yaml`; the address (and a token, if any) goes into a Webhook block of the
server, which keeps it as a secret. What is sent is one JSON object: `flow`, `run`, `state`, `message`, `url`.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from kernels_eval.errors import InputError

TEMPLATE = Path("deployments/automations/failure-webhook.yaml")
BLOCK_NAME = "kernelmill-failures"
_ADDRESS = "{{ WEBHOOK_BLOCK_ID }}"


def load_template(path: Path, block_id: str) -> dict[str, Any]:
    """Return the automation with the block's id filled in. InputError where the file is none, or has no place for it."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if _ADDRESS not in text:
        raise InputError(f"{path}: expected {_ADDRESS} as the block_document_id of an action, found none")
    loaded = yaml.safe_load(text.replace(_ADDRESS, block_id))
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected an automation, found {type(loaded).__name__}")
    return {str(key): value for key, value in loaded.items()}


def tell_webhook(url: str, token: str | None = None, template: Path = TEMPLATE) -> str:
    """Have the server call `url` on failures from now on; return the automation's id. Replaces an earlier one of the same name.

    token: sent as a bearer token.
    """
    from prefect.automations import Automation
    from prefect.blocks.webhook import Webhook
    from prefect.types import SecretDict
    from pydantic import SecretStr

    if not url.startswith(("http://", "https://")):
        raise InputError(f"the webhook's address: found {url!r}, expected http://… or https://…")
    headers: dict[str, Any] = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    block: Any = Webhook(method="POST", url=SecretStr(url), headers=SecretDict(headers))
    block_id = block.save(BLOCK_NAME, overwrite=True)
    content = load_template(template, str(block_id))
    automations: Any = Automation
    with suppress(ValueError):  # none of this name
        automations.read(name=str(content["name"])).delete()
    return str(automations(**content).create().id)
