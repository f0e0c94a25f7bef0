"""Environment of a run: proxies that Prefect's client cannot use are named before anything starts."""

import pytest

from flows.services import environment
from kernels_eval.errors import InputError


@pytest.fixture(autouse=True)
def _without_proxies(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for name in ("all_proxy", "http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize("name", ["ALL_PROXY", "all_proxy", "https_proxy"])
@pytest.mark.parametrize("scheme", ["socks5", "SOCKS5h", "socks4"])
def test_a_socks_proxy_is_refused_by_name_and_its_password_is_not_told(
    monkeypatch: pytest.MonkeyPatch, name: str, scheme: str
) -> None:
    monkeypatch.setattr(environment, "find_spec", lambda _: None)
    monkeypatch.setenv(name, f"{scheme}://me:secret@127.0.0.1:9")
    with pytest.raises(InputError, match=f"^{name}: found a proxy {scheme.lower()}://…, .*socksio") as caught:
        environment.check_proxies()
    assert "secret" not in str(caught.value)


def test_other_proxies_and_socks_with_its_package_are_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "find_spec", lambda _: None)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    environment.check_proxies()
    monkeypatch.setenv("ALL_PROXY", "socks5://127.0.0.1:9")
    with monkeypatch.context() as within:
        within.setenv("no_proxy", "example.com, *")
        environment.check_proxies()
    monkeypatch.setattr(environment, "find_spec", lambda _: object())
    environment.check_proxies()
