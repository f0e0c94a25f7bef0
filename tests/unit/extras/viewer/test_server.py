"""The viewer's server and its static export: who may read, and that text of kernels stays text."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from extras.viewer.export import write_page
from extras.viewer.server import create_app

TOKEN = "a-token-of-a-test"
RUN = "run=first-11111111"
PAGES = {
    "runs": "", "some runs": f"?{RUN}&run=second-22222222", "run": f"run?{RUN}", "speed": f"run?{RUN}&kind=training&colour=speed",
    "answers": f"answers?{RUN}", "text": f"answers?{RUN}&text=x", "answer": f"answer?{RUN}&batch=policy-001&id=relu-000",
    "no kernel": f"answer?{RUN}&batch=policy-001&id=softmax-000", "compare": "compare",
    "problem": "compare?first=first-11111111/policy-000&second=second-22222222/policy-001&problem=relu",
    "refused": f"answers?{RUN}&status=%3Cscript%3E&problem=%22%3E%3Cscript%3E",
    "message": "run?run=%22%3E%3Cscript%3Ealert(1)%3C/script%3E",
}  # fmt: skip


class Elements(HTMLParser):
    """Tags with their attributes, and ids, of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def client(runs_dir: Path) -> TestClient:
    return TestClient(create_app(runs_dir, TOKEN, "http://127.0.0.1:4200"), base_url="http://127.0.0.1:18191")


@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
def test_pages_hold_no_script_no_inline_style_and_nothing_of_another_host(client: TestClient, page: str) -> None:
    reply = client.get(f"/{TOKEN}/{page}")
    assert reply.status_code in (200, 404)
    assert reply.headers["content-security-policy"].startswith("default-src 'none'; style-src 'self'")
    assert "<script" not in reply.text
    for tag, attributes in Elements(reply.text).found:
        assert tag not in ("script", "img", "iframe", "object", "style"), tag
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        for name in ("href", "src", "action"):
            address = attributes.get(name) or ""
            assert "://" not in address or address.startswith("http://127.0.0.1:4200/runs/flow-run/")
            assert not address.lower().startswith("javascript:")
    assert "\u202e" not in reply.text


def test_an_answer_shows_what_was_asked_for(client: TestClient, flow_run: str, runs_dir: Path) -> None:
    text = client.get(f"/{TOKEN}/{PAGES['answer']}").text
    for expected in (
        '<span class="line cut">-x = 1</span>', '<span class="line add">+x = 2</span>', '<i class="keyword">import</i>',
        "tiny blocks", "900 GB/s", "estimate", "reward 1.300", "return 1.300", flow_run, "turns.parquet", "optimizer",
    ):  # fmt: skip
        assert expected in text
    row = re.search(r'href="(turn\.json\?[^"]+)"', text)
    assert row
    stored = client.get(f"/{TOKEN}/{row[1].replace('&amp;', '&')}").json()[0]
    assert (stored["trajectory_id"], stored["turn_index"]) == ("relu-000", 0)


@pytest.mark.parametrize("path", ["/", "/run", "/style.css", "/wrong-token/", f"/{TOKEN}x/", f"//{TOKEN}/", "/%00/"])
def test_without_the_token_nothing_is_found(client: TestClient, path: str) -> None:
    reply = client.get(path)
    assert reply.status_code == 404
    assert "first-11111111" not in reply.text


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:18191"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ],
)
def test_foreign_hosts_and_origins_are_refused_with_the_token_too(client: TestClient, headers: dict[str, str]) -> None:
    reply = client.get(f"/{TOKEN}/", headers=headers)
    assert reply.status_code == 403
    assert "first-11111111" not in reply.text


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_it_only_reads(client: TestClient, method: str) -> None:
    assert client.request(method, f"/{TOKEN}/").status_code == 405


@pytest.mark.parametrize(
    "page",
    [
        "run?run=../second-22222222",
        f"answer?{RUN}&batch=../../store&id=relu-000",
        f"turn.json?{RUN}&batch=policy-000&row=-1",
        f"turn.json?{RUN}&batch=policy-000&row=1e9",
        "compare?first=x",
        f"run?{RUN}&page=x",
        f"run?{RUN}&kind=x",
        f"answers?{RUN}&min_speedup=x",
    ],
)
def test_what_is_not_there_is_said(client: TestClient, page: str) -> None:
    reply = client.get(f"/{TOKEN}/{page}")
    assert reply.status_code == 404
    assert "found" in reply.text


def test_an_address_without_its_last_slash_leads_to_the_page(client: TestClient) -> None:
    assert client.get(f"/{TOKEN}").url.path == f"/{TOKEN}/"


def test_links_of_each_kind_of_page_lead_to_pages(client: TestClient) -> None:
    seen, waiting = set[tuple[str, ...]](), ["./"]
    while waiting:
        address = waiting.pop()
        page, _, query = address.partition("?")
        kind = (page, *(part.partition("=")[0] for part in query.split("&")))
        if kind in seen:
            continue
        seen.add(kind)
        reply = client.get(f"/{TOKEN}/{address}")
        assert reply.status_code == 200, address
        if "html" in reply.headers["content-type"]:
            links = [attributes.get("href") or "" for tag, attributes in Elements(reply.text).found if tag == "a"]
            waiting += [link for link in links if "://" not in link and link[:1] != "#"]
    assert {page for page, *_ in seen} >= {"./", "run", "answers", "answer", "compare", "turn.json"}


def test_the_export_stands_alone_and_runs_only_its_own_script(runs_dir: Path, tmp_path: Path, hostile: str) -> None:
    file = tmp_path / "page.html"
    assert write_page(runs_dir, file, answers=3) == 6
    text = file.read_text()
    elements = Elements(text).found
    policy = next(
        attributes["content"]
        for tag, attributes in elements
        if tag == "meta" and "content" in attributes and "script-src" in (attributes["content"] or "")
    )
    nonce = re.search(r"script-src 'nonce-([\w-]+)'", policy or "")
    assert nonce
    assert "unsafe" not in (policy or "")
    assert [attributes.get("nonce") for tag, attributes in elements if tag in ("script", "style")] == [nonce[1]] * 2
    assert not [tag for tag, attributes in elements for name in attributes if name.startswith("on") or name == "src"]
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = {attributes.get("href") or "" for tag, attributes in elements if tag == "a"}
    assert all(link[:1] == "#" and link[1:] in ids for link in links)
    assert hostile not in text
    write_page(runs_dir, file, answers=3)
    assert nonce[1] not in file.read_text()
