"""Loopback: addresses that only this machine reaches, and requests to them that pass by every proxy.

Libraries send requests to 127.0.0.1 through the proxy of `http_proxy` unless `no_proxy` names it. The proxy is another
machine: it finds no server at its own 127.0.0.1.
"""

import ipaddress
import os
from urllib.parse import urlsplit

NAMES = ("localhost", "127.0.0.1", "::1")
"""Names and addresses under which our servers listen."""


def is_loopback(host: str) -> bool:
    """Return True for `localhost`, its subdomains and loopback addresses."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_on_loopback(url: str) -> bool:
    """Return True if the URL's host is loopback. False for what is no URL."""
    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def keep_off_proxies() -> None:
    """Add loopback to `no_proxy` of this process and its children, for every library that reads it."""
    named = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    known = [entry.strip() for entry in named.split(",") if entry.strip()]
    if "*" not in known:
        known += [name for name in NAMES if name not in known]
    os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(known)
