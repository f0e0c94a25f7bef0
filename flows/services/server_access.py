"""Access to a Prefect server: the auth string of the one that we start, and signing in to it.

Whoever may call a Prefect server's API can have it run a command as the server's user. The server that we start
therefore asks for an auth string (`name:password`), kept in `prefect/auth` of the folder of runs, for its owner only.
PREFECT_SERVER_API_AUTH_STRING replaces it.
"""

import os
import secrets
from collections.abc import Generator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from kernels_eval.errors import InputError
from kernels_eval.loopback import is_on_loopback

AUTH = "auth"
"""File of the auth string, in the folder of the server."""
_USER = "kernelmill"
_UNAUTHORISED = 401


def server_auth(home: Path) -> str:
    """Return the auth string of the server in this folder; a new one is written there (mode 0600)."""
    from prefect.settings import get_current_settings

    configured = get_current_settings().server.api.auth_string
    if configured is not None:
        return configured.get_secret_value()
    keep_auth(home, f"{_USER}:{secrets.token_urlsafe(32)}")
    return _read(home / AUTH)


def keep_auth(home: Path, auth: str) -> None:
    """Write an auth string for the server in this folder, unless one is there."""
    path = home / AUTH
    if path.exists():
        return
    home.mkdir(parents=True, exist_ok=True)
    partial = home / f".{AUTH}-{os.getpid()}"
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"{auth}\n")
    with suppress(FileExistsError):  # another command was faster
        os.link(partial, path)
    partial.unlink()


def how_to_sign_in(home: Path) -> str | None:
    """Return the shell command that signs a terminal in; None if the environment sets the auth string."""
    from prefect.settings import get_current_settings

    if get_current_settings().server.api.auth_string is not None:
        return None
    return f'export PREFECT_API_AUTH_STRING="$(cat {home / AUTH})"'


@contextmanager
def signed_in(api_url: str, runs_dir: Path) -> Generator[None]:
    """Use the server of this address while the block runs, with the auth string of the folder of runs if none is set.

    Only for a server on loopback: no other gets our auth string. Raises InputError if the server refuses.
    """
    from prefect.settings import get_current_settings

    path = runs_dir / "prefect" / AUTH
    needed = get_current_settings().api.auth_string is None and is_on_loopback(api_url) and path.is_file()
    with pointed_at(api_url, _read(path)) if needed else nullcontext():
        _check_signed_in(api_url, path)
        yield


@contextmanager
def pointed_at(api_url: str, auth: str) -> Generator[None]:
    """Set PREFECT_API_URL and PREFECT_API_AUTH_STRING for this process, its threads and its children."""
    from prefect.context import refresh_global_settings_context
    from prefect.settings import temporary_settings

    values = {"PREFECT_API_URL": api_url, "PREFECT_API_AUTH_STRING": auth}
    before = {name: os.environ.get(name) for name in values}
    os.environ |= values
    # New threads have no context; without this their logs and artifacts would go to another server.
    refresh_global_settings_context()
    try:
        with temporary_settings({"api.url": api_url, "api.auth_string": auth}):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        refresh_global_settings_context()


def _check_signed_in(api_url: str, path: Path) -> None:
    """Raise InputError if the server wants another auth string. Whatever else is wrong shows when it is used."""
    from httpx import HTTPError, HTTPStatusError
    from prefect import get_client
    from prefect.settings import get_current_settings

    try:
        with get_client(sync_client=True) as client:
            client.hello()
    except HTTPStatusError as error:
        if error.response.status_code != _UNAUTHORISED or get_current_settings().api.key is not None:
            return
        raise InputError(
            f"PREFECT_API_AUTH_STRING: the Prefect server at {api_url} asks for its auth string, found another one or "
            f"none; a server that kernelmill started keeps it in its folder of runs, as {path}"
        ) from error
    except HTTPError:
        return


def _read(path: Path) -> str:
    """Return the auth string in a file. Raises InputError if there is none."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: the auth string of the Prefect server cannot be read: {error}") from error
    if not text:
        raise InputError(f"{path}: expected the auth string of the Prefect server, found nothing; delete the file")
    return text
