"""Health of servers that a configuration names by address."""

import urllib.error
import urllib.request
from collections.abc import Sequence

HEALTH_TIMEOUT_S = 3.0
"""A server that takes longer to answer counts as unhealthy."""


def unhealthy_servers(urls: Sequence[str], path: str = "/health", key: str = "") -> list[str]:
    """Return one line for each server that does not answer at `path` with status 200. `key`: for those that ask."""
    wrong: list[str] = []
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # as the engine asks them
    for url in urls:
        try:
            headers = {"Authorization": f"Bearer {key}"} if key else {}
            asked = urllib.request.Request(f"{url.rstrip('/')}{path}", headers=headers)
            with direct.open(asked, timeout=HEALTH_TIMEOUT_S) as response:
                if response.status != 200:
                    wrong.append(f"{url}: status {response.status}")
        except (urllib.error.URLError, OSError, ValueError) as error:
            wrong.append(f"{url}: {getattr(error, 'reason', error)}")
    return wrong
