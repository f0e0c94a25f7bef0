"""Access to the Prefect server that we start: for those who read its auth string, and for no web page of another site."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect import flow, get_client
from prefect.settings import temporary_settings

from flows.services.prefect_server import PrefectServer, prefect_server
from flows.services.server_access import AUTH, how_to_sign_in, server_auth, signed_in
from kernels_eval.errors import InputError

pytestmark = pytest.mark.long
EVIL = "https://evil.example"
COMMAND = {"job_variables": {"command": "touch /tmp/kernelmill-was-attacked"}}


def folder_of(server: PrefectServer) -> Path:
    assert server.sign_in is not None
    return Path(server.sign_in.split("cat ")[1].removesuffix(')"')).parent


def test_a_page_of_another_site_reads_and_starts_nothing(server: PrefectServer) -> None:
    """Sends what a page can send without the browser's leave (a form's types), and what it asks leave for."""

    @flow
    def target() -> None: ...

    with get_client(sync_client=True) as client:
        flow_id = client.create_flow(target)
        deployment = client.create_deployment(flow_id, "attacked")
        before = len(client.read_flow_runs())
    attacks: list[tuple[str, dict[str, Any]]] = [
        (f"/deployments/{deployment}/create_flow_run", COMMAND),
        ("/flow_runs/", {"flow_id": str(flow_id)}),
        ("/work_pools/", {"name": "evil", "type": "process"}),
        ("/deployments/filter", {}),
        ("/logs/filter", {}),
    ]
    for kind in ("text/plain", "application/x-www-form-urlencoded", "application/json"):
        for host in (httpx.URL(server.api_url).netloc.decode(), "evil.example"):
            for path, body in attacks:
                headers = {"Origin": EVIL, "Content-Type": kind, "Host": host}
                reply = httpx.post(server.api_url + path, json=body, headers=headers)
                assert reply.status_code == 401, (path, reply.text)
                assert "access-control-allow-origin" not in reply.headers
    leave = {"Origin": EVIL, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    reply = httpx.options(f"{server.api_url}/flow_runs/", headers=leave)
    assert reply.status_code == 400
    assert "access-control-allow-origin" not in reply.headers
    with get_client(sync_client=True) as client:
        assert len(client.read_flow_runs()) == before
        assert "evil" not in {pool.name for pool in client.read_work_pools()}
        client.delete_deployment(deployment)


def test_its_own_page_may_ask(server: PrefectServer) -> None:
    port = httpx.URL(server.api_url).port
    for origin in (f"http://127.0.0.1:{port}", f"http://localhost:{port}"):
        leave = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        reply = httpx.options(f"{server.api_url}/flow_runs/", headers=leave)
        assert reply.headers["access-control-allow-origin"] == origin
    assert httpx.get(f"{server.ui_url}/ui-settings").json()["auth"] == "BASIC"


def test_the_auth_string_is_its_owners_alone_and_stays(server: PrefectServer) -> None:
    home = folder_of(server)
    assert stat.S_IMODE((home / AUTH).stat().st_mode) == 0o600
    assert server_auth(home) == (home / AUTH).read_text().strip()
    assert len(server_auth(home)) > 40
    assert not list(home.glob(f".{AUTH}*"))
    assert server_auth(home).encode() not in (home / "server.log").read_bytes()


def test_another_terminal_signs_in_as_it_is_told(server: PrefectServer) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.endswith("API_AUTH_STRING")}
    environment["PREFECT_API_URL"] = server.api_url
    list_runs = f"{sys.executable} -m prefect flow-run ls"
    done = subprocess.run(["bash", "-c", f"{server.sign_in}; {list_runs}"], env=environment, capture_output=True)
    assert done.returncode == 0, done.stderr
    refused = subprocess.run(["bash", "-c", list_runs], env=environment, capture_output=True)
    assert refused.returncode != 0


def test_the_folder_of_runs_signs_in(server: PrefectServer, tmp_path: Path) -> None:
    runs_dir = folder_of(server).parent
    with temporary_settings(restore_defaults={"api.auth_string"}):
        with prefect_server(runs_dir) as found, get_client(sync_client=True) as client:
            assert not found.ours
            client.hello()
        with pytest.raises(InputError, match="asks for its auth string"), prefect_server(tmp_path):
            pass


def test_no_other_machine_gets_the_auth_string(tmp_path: Path) -> None:
    server_auth(tmp_path / "prefect")
    address = "http://192.0.2.1:9/api"  # reserved for documentation
    with temporary_settings({"api.url": "http://127.0.0.1:9/api"}, restore_defaults={"api.auth_string"}):
        from prefect.settings import get_current_settings

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("flows.services.server_access._check_signed_in", lambda *_: None)
            with signed_in(address, tmp_path):
                assert get_current_settings().api.auth_string is None


def test_one_that_the_environment_sets_is_used_and_written_nowhere(tmp_path: Path) -> None:
    with temporary_settings({"server.api.auth_string": "me:mine"}):
        assert server_auth(tmp_path) == "me:mine"
        assert how_to_sign_in(tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_an_empty_file_is_named(tmp_path: Path) -> None:
    (tmp_path / AUTH).touch()
    with pytest.raises(InputError, match=f"{AUTH}: expected the auth string"):
        server_auth(tmp_path)
