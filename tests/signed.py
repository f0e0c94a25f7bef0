"""Addresses of a Prefect server with its auth string in them, as httpx takes them."""

import os
from pathlib import Path


def signed(url: str, home: Path | None = None) -> str:
    """Return the URL with the auth string of the server in this folder, by default the one that this process uses."""
    auth = (
        os.environ["PREFECT_API_AUTH_STRING"] if home is None else (home / "auth").read_text(encoding="utf-8").strip()
    )
    return url.replace("http://", f"http://{auth}@")
