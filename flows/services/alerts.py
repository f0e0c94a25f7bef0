"""What the Prefect server does by itself about runs that go wrong: automations, from the templates in `deployments/automations`.

`vanished-runs.yaml` marks a run as Crashed whose process no longer sends heartbeats. `failure-webhook.yaml` calls a webhook when a run
fails, crashes or is cancelled: its address (and a token, if any) goes into a Webhook block of the server, which keeps it as a secret;
what is sent is one JSON object: `flow`, `run`, `state`, `message`, `url`.
"""

from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from kernels_eval.errors import InputError

WEBHOOK_TEMPLATE = Path("deployments/automations/failure-webhook.yaml")
VANISHED_TEMPLATE = Path("deployments/automations/vanished-runs.yaml")
BLOCK_NAME = "kernelmill-failures"
_ADDRESS = "{{ WEBHOOK_BLOCK_ID }}"


def load_template(path: Path, block_id: str | None = None) -> dict[str, Any]:
    """Return the automation in a file, with the block's id filled in. InputError where the file is none, or has no place for the block."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    if block_id is not None and _ADDRESS not in text:
        raise InputError(f"{path}: expected {_ADDRESS} as the block_document_id of an action, found none")
    loaded = yaml.safe_load(text if block_id is None else text.replace(_ADDRESS, block_id))
    if not isinstance(loaded, dict):
        raise InputError(f"{path}: expected an automation, found {type(loaded).__name__}")
    return {str(key): value for key, value in loaded.items()}


def notice_vanished_runs(template: Path = VANISHED_TEMPLATE) -> str:
    """Have the server mark runs as Crashed whose process is gone; return the automation's id."""
    return _put_in_place(load_template(template))


def tell_webhook(url: str, token: str | None = None, template: Path = WEBHOOK_TEMPLATE) -> str:
    """Have the server call `url` on failures from now on; return the automation's id.

    token: sent as a bearer token.
    """
    from prefect.blocks.webhook import Webhook
    from prefect.types import SecretDict
    from pydantic import SecretStr

    if not url.startswith(("http://", "https://")):
        raise InputError(f"the webhook's address: found {url!r}, expected http://… or https://…")
    headers: dict[str, Any] = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    block: Any = Webhook(method="POST", url=SecretStr(url), headers=SecretDict(headers))
    return _put_in_place(load_template(template, str(block.save(BLOCK_NAME, overwrite=True))))


def _put_in_place(content: dict[str, Any]) -> str:
    """Create an automation in place of the one of the same name, if there is one."""
    from prefect.automations import Automation

    automations: Any = Automation
    with suppress(ValueError):  # none of this name
        automations.read(name=str(content["name"])).delete()
    return str(automations(**content).create().id)
