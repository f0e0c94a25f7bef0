"""Services of deployments/compose.yaml, started by hand: its own commands, environments, names, ports and health checks, without containers.

The services share a network namespace of their own, in which `postgres` and `prefect` are names of loopback, and a folder that holds
what the Dockerfile copies and nothing else. PostgreSQL comes from the system's packages. Then a deployment runs to its end,
and the judge judges. What is not the file's own here: how PostgreSQL's image makes its database, and a run of a small size.
"""

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.services.deployments import FLOWS
from flows.settings.configuration import load_configuration
from kernels_eval.problem import EXAMPLE_KERNEL, EXAMPLE_PROBLEM

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deployments/compose.yaml"
DOCKERFILE = ROOT / "deployments/container/Dockerfile"
WAIT_S = 900.0
"""Only a hang takes longer."""
SECRETS = {
    "POSTGRES_PASSWORD": secrets.token_hex(8),
    "KERNELMILL_JUDGE_TOKEN": secrets.token_hex(8),
    "PREFECT_API_AUTH_STRING": f"operator:{secrets.token_hex(8)}",
}
SIGNED = ("--user", SECRETS["PREFECT_API_AUTH_STRING"])
SOCKETS = "/var/run/postgresql"
"""Place where PostgreSQL's programs look for it in its image."""
SMALL = [
    "name=composed", "iterations=1", "control=false", "problems.train=16", "problems.heldout=4", "sft.steps=40", "sft.data.compositions=24",
    "sft.warmup_steps=5", "rollout.episode.reward=kernelbench - 0.2*length", "rollout.problems_per_iteration=4",
    "rollout.samples_per_problem=4", "evaluation.samples_per_problem=2", "update.threads_per_rank=1", "rollout.threads=1",
]  # fmt: skip


def interpolated(text: str) -> str:
    """Fill in `${NAME:?why}` and `${NAME:-default}` as Compose does."""

    def value(found: re.Match[str]) -> str:
        name, kind, rest = found.groups()
        assert kind == "-" or name in SECRETS, f"{name} is wanted: {rest}"
        return SECRETS.get(name, rest)

    return re.sub(r"\$\{(\w+):([?-])([^}]*)\}", value, text)


def postgresql(name: str) -> str | None:
    """Return one of PostgreSQL's programs, on PATH or where Debian keeps them."""
    places = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    return shutil.which(name) or (str(places[-1]) if places else None)


def missing() -> str | None:
    """Return why this machine cannot start the services."""
    if os.getuid() != 0:
        return "only root can make a network of its own with names in it"
    programs = [name for name in ("initdb", "postgres", "pg_isready", "psql") if postgresql(name) is None]
    programs += [name for name in ("unshare", "nsenter", "setpriv", "ip", "curl") if shutil.which(name) is None]
    return f"not installed: {', '.join(programs)}" if programs else None


class Stack:
    """The services of the file, as processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.services: dict[str, Any] = {
            name: service
            for name, service in yaml.safe_load(interpolated(COMPOSE.read_text(encoding="utf-8")))["services"].items()
            if "profiles" not in service
        }
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        hosts = folder / "hosts"
        hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in ("localhost", *self.services)))
        inside = f"ip link set lo up && mount --bind {hosts} /etc/hosts && echo up && exec sleep infinity"
        self.network = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", inside], stdout=subprocess.PIPE
        )
        assert self.network.stdout is not None
        assert self.network.stdout.readline() == b"up\n"
        self.home = folder / "image"
        self._copy_as_the_image_does()

    def _copy_as_the_image_does(self) -> None:
        for line in DOCKERFILE.read_text(encoding="utf-8").splitlines():
            if line.startswith("COPY "):
                *sources, target = line.split()[1:]
                for source in sources:
                    place = self.home / (source if target == "./" else target)
                    place.parent.mkdir(parents=True, exist_ok=True)
                    if (ROOT / source).is_dir():
                        shutil.copytree(
                            ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True
                        )
                    else:
                        shutil.copy(ROOT / source, place)

    def environment(self, service: str) -> dict[str, str]:
        """Return the image's variables and those of the service, and none of this process's but where programs are."""
        (block,) = re.findall(r"^ENV ((?:.*\\\n)*.*)$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
        image = dict(entry.split("=", 1) for entry in block.replace("\\\n", " ").split())
        places = [str(Path(sys.executable).parent), os.environ["PATH"]]
        return {
            **image,
            "PATH": os.pathsep.join(places),
            "HOME": str(self.folder / service),
            "PYTHONPATH": str(self.home),  # where the image has the packages installed
            **{name: str(value) for name, value in self.services[service]["environment"].items()},
        }

    def command(self, service: str, *words: str, user: str | None = None) -> list[str]:
        """Return what runs a command inside, as `docker compose exec` does."""
        # Where another user may be as well: PostgreSQL does not start in a folder that it cannot read.
        folder = Path("/") if user else self.home
        enter = ["nsenter", "--target", str(self.network.pid), "--net", "--mount", f"--wd={folder}"]
        drop = ["setpriv", f"--reuid={user}", "--clear-groups"] if user else []
        variables = [f"{name}={value}" for name, value in self.environment(service).items()]
        return [*enter, *drop, "env", "-i", *variables, *words]

    def run(self, service: str, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.command(service, *words), capture_output=True, text=True, timeout=WAIT_S)

    def say(self, service: str, *words: str) -> str:
        done = self.run(service, *words)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def ask(self, url: str, *options: str) -> Any:
        return json.loads(self.say("prefect", "curl", "--fail", "--silent", *options, url))

    def start(self, service: str, words: list[str], user: str | None = None) -> None:
        (self.folder / service).mkdir(exist_ok=True)
        with (self.folder / f"{service}.log").open("wb") as log:
            self.processes[service] = subprocess.Popen(
                self.command(service, *words, user=user), stdout=log, stderr=log, preexec_fn=hear_interrupts
            )

    def start_postgresql(self) -> None:
        """Do what PostgreSQL's image does with its variables, as `nobody`, since it refuses to run as root."""
        initdb, postgres = postgresql("initdb"), postgresql("postgres")
        assert initdb is not None
        assert postgres is not None
        wanted = self.services["postgres"]["environment"]
        # Every folder on the way is to be entered by another user than the one whose temporary folder this is.
        self.database = Path(f"/tmp/kernelmill-postgres-{self.network.pid}")
        self.database.mkdir(mode=0o700)
        (self.database / "password").write_text(wanted["POSTGRES_PASSWORD"])
        for path in (self.database, self.database / "password"):
            shutil.chown(path, "nobody")
        data, user = str(self.database / "data"), wanted["POSTGRES_USER"]
        made = [initdb, "-D", data, "-U", user, "--auth=scram-sha-256", f"--pwfile={self.database / 'password'}"]
        subprocess.run(["setpriv", "--reuid=nobody", "--clear-groups", *made], check=True, capture_output=True, cwd="/")
        sockets = f"mkdir -p {SOCKETS} && mount --bind {self.database} {SOCKETS}"
        self.say("postgres", "sh", "-c", sockets)
        self.start("postgres", [postgres, "-D", data, "-k", SOCKETS], user="nobody")
        server = ["-h", "127.0.0.1", "-U", user, "-d", "postgres"]
        password = ["env", f"PGPASSWORD={wanted['POSTGRES_PASSWORD']}", "psql", *server]
        create = f"create database {wanted['POSTGRES_DB']}" if wanted["POSTGRES_DB"] != "postgres" else "select 1"
        self.wait_until_passes("postgres", *password, "-c", "select 1")
        self.say("postgres", *password, "-c", create)

    def query(self, statement: str) -> str:
        wanted = self.services["postgres"]["environment"]
        server = ["-h", "postgres", "-U", wanted["POSTGRES_USER"], "-d", wanted["POSTGRES_DB"]]
        return self.say(
            "postgres", "env", f"PGPASSWORD={wanted['POSTGRES_PASSWORD']}", "psql", *server, "-Atc", statement
        )

    def wait_until_healthy(self, service: str) -> None:
        """Run the service's own health check until it passes."""
        kind, *words = self.services[service]["healthcheck"]["test"]
        check = ["sh", "-c", *words] if kind == "CMD-SHELL" else words

        self.wait_until_passes(service, *check)

    def wait_until_passes(self, service: str, *words: str) -> None:
        """Run a command until it ends with 0."""

        def passes() -> bool:
            assert self.processes[service].poll() is None, (self.folder / f"{service}.log").read_text()
            return self.run(service, *words).returncode == 0

        wait_until(passes, f"{service}: {' '.join(words)}")

    def up(self) -> None:
        """Start every service once those that it waits for are healthy."""
        waiting = dict(self.services)
        while waiting:
            name = next(
                name for name, service in waiting.items() if not set(service.get("depends_on", ())) & set(waiting)
            )
            service = waiting.pop(name)
            if name == "postgres":
                self.start_postgresql()
            else:
                self.start(name, service["command"])
            self.wait_until_healthy(name)

    def inside(self) -> list[int]:
        """Every living process of the namespace but the one that keeps it."""
        network = Path(f"/proc/{self.network.pid}/ns/net").stat().st_ino
        found: list[int] = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z" and (entry / "ns/net").stat().st_ino == network:
                    found.append(int(entry.name))
            except OSError:
                continue
        return [process for process in found if process != self.network.pid]

    def down(self) -> None:
        """Stop the services in the reverse order, as `docker compose down` does, and see that nothing stays."""
        try:
            for name in reversed(self.processes):
                self.processes[name].terminate()
                self.processes[name].wait(timeout=WAIT_S)
            wait_until(lambda: not self.inside(), "all processes of the services are gone")
        finally:
            for process in self.inside():
                os.kill(process, signal.SIGKILL)
            self.network.kill()
            self.network.wait()
            if hasattr(self, "database"):
                shutil.rmtree(self.database, ignore_errors=True)


def hear_interrupts() -> None:
    """Undo what a shell does to programs in the background. Prefect's worker stops on SIGTERM by sending itself SIGINT."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that comes, unless something hangs."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S:g} s until {what}"
        time.sleep(0.5)


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    started = Stack(tmp_path_factory.mktemp("stack"))
    try:
        started.up()
        yield started
    finally:
        started.down()


def test_a_deployment_runs_to_its_end(stack: Stack):
    config = load_configuration(ROOT / "deployments/configs/test.yaml", SMALL)
    parameters = json.dumps({"config": config.model_dump(mode="json")})
    said = stack.say("worker", "prefect", "deployment", "run", "training/local", "--params", parameters)
    found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", said)
    assert found is not None, said
    api = stack.services["worker"]["environment"]["PREFECT_API_URL"]

    def state() -> dict[str, Any]:
        return stack.ask(f"{api}/flow_runs/{found[0]}", *SIGNED)["state"]

    wait_until(lambda: state()["type"] in ("COMPLETED", "FAILED", "CRASHED", "CANCELLED"), "the run ends")
    assert state()["type"] == "COMPLETED", state()
    assert (stack.home / "runs" / config.run_id / "report.html").exists()
    assert stack.query(f"select state_name from flow_run where id = '{found[0]}'").strip() == "Completed"


def test_every_deployment_is_there_and_runs_that_vanish_are_noticed(stack: Stack):
    api = stack.services["worker"]["environment"]["PREFECT_API_URL"]
    wanted = (*SIGNED, "--request", "POST", "--header", "Content-Type: application/json", "--data", "{}")
    entrypoints = {deployment["entrypoint"] for deployment in stack.ask(f"{api}/deployments/filter", *wanted)}
    assert entrypoints == {deployed.entrypoint for deployed in FLOWS}
    assert "kernelmill runs that vanish" in {entry["name"] for entry in stack.ask(f"{api}/automations/filter", *wanted)}


def test_the_judge_judges_who_has_the_token(stack: Stack):
    body = stack.home / "kernel.json"
    body.write_text(json.dumps({"problem_source": EXAMPLE_PROBLEM, "kernel_source": EXAMPLE_KERNEL}))
    url = "http://judge:18188/eval"
    send = ("--request", "POST", "--header", "Content-Type: application/json", "--data", f"@{body}")
    refused = stack.say("judge", "curl", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", *send, url)
    assert refused == "401"
    token = f"Authorization: Bearer {SECRETS['KERNELMILL_JUDGE_TOKEN']}"
    assert stack.ask(url, *send, "--header", token)["status"] == "correct"
