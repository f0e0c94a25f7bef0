"""Server of the pages: on loopback, for one person, and it only reads.

The token is the first part of every path: whoever has the address may read, nobody else. `Gate` refuses other hosts
and the pages of other sites. The content security policy lets pages run no script, ask no other host, and be framed
nowhere; no address with the token leaves in a `Referer`.
"""

import hmac
import json
import secrets
from collections import Counter
from collections.abc import Callable, MutableMapping
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from extras.viewer import pages
from extras.viewer.runs import Batch, RunFolder, find_runs
from kernels_eval.errors import InputError
from kernels_eval.server.gate import App, Gate, Receive, Send
from kernels_eval.server.serving import listening, serve_app
from tasks.trajectories.reader import read_turn_rows

HOST = "127.0.0.1"
POLICY = "default-src 'none'; style-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_BODY_S = 5.0
_SHUTDOWN_S = 1.0


def serve(path: Path, port: int, prefect: str | None, on_ready: Callable[[str], None]) -> None:
    """Serve the runs at `path` until Ctrl-C or SIGTERM; `port` 0: a free one. Calls `on_ready` with the address.

    `prefect`: address of Prefect's UI, for links. Raises InputError if there is no run, or the port cannot be had.
    """
    find_runs(path)
    token = secrets.token_urlsafe(24)
    with listening(HOST, port) as listener:
        serve_app(
            create_app(path, token, prefect), listener, _SHUTDOWN_S, lambda: None,
            lambda address: on_ready(f"{address}/{token}/"), _BODY_S,
        )  # fmt: skip


def create_app(path: Path, token: str, prefect: str | None = None) -> App:
    """Return the application for the runs at `path`, which are looked for anew at each request."""
    site = pages.Site(prefect=prefect)

    def page(draw: Callable[[dict[str, RunFolder], Request], str]) -> Callable[[Request], Response]:
        def reply(request: Request) -> Response:
            try:
                return _html(draw(find_runs(path), request))
            except InputError as error:
                return _html(pages.message_page(site, str(error)), 404)

        return reply

    def turn(request: Request) -> Response:
        try:
            _, batch = _batch(find_runs(path), request)
            row = read_turn_rows(batch.file, _whole(request, "row"), 1)
        except InputError as error:
            return _html(pages.message_page(site, str(error)), 404)
        return Response(json.dumps(row, default=str, indent=1), media_type="application/json", headers=HEADERS)

    def style(_: Request) -> Response:
        return Response(pages.style(), media_type="text/css", headers=HEADERS)

    def answers(runs: dict[str, RunFolder], request: Request) -> str:
        return pages.answers_page(site, _run(runs, request), request.query_params, list(runs))

    def answer(runs: dict[str, RunFolder], request: Request) -> str:
        return pages.answer_page(site, *_batch(runs, request), request.query_params.get("id", ""))

    routes = {
        "/": page(lambda runs, request: pages.runs_page(site, runs, request.query_params.getlist("run"))),
        "/run": page(lambda runs, request: pages.run_page(site, _run(runs, request), request.query_params)),
        "/answers": page(answers),
        "/answer": page(answer),
        "/compare": page(lambda runs, request: pages.compare_page(site, runs, request.query_params)),
        "/turn.json": turn,
        "/style.css": style,
    }
    application = Starlette(routes=[Route(place, endpoint, methods=["GET"]) for place, endpoint in routes.items()])
    return Gate(
        _behind_token(application, token), token=None, max_body_bytes=0, body_timeout_s=_BODY_S, replies=Counter()
    )


def _behind_token(application: Starlette, token: str) -> App:
    """Return the application below `/<token>`; every other path is not found."""

    async def guarded(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            _, given, *rest = [*scope["path"].split("/", 2), ""]
            if not hmac.compare_digest(given.encode(), token.encode()):
                expected = "expected the address that `kernelmill view` printed, with its token\n"
                await Response(expected, 404, HEADERS, "text/plain")(scope, receive, send)
                return
            if scope["path"].count("/") == 1:  # links are relative to the folder
                await RedirectResponse(f"{scope['path']}/", headers=HEADERS)(scope, receive, send)
                return
            scope = {**scope, "path": f"/{rest[0]}", "raw_path": f"/{rest[0]}".encode()}
        await application(scope, receive, send)

    return guarded


def _html(text: str, status: int = 200) -> Response:
    return Response(text, status, HEADERS, "text/html")


def _run(runs: dict[str, RunFolder], request: Request) -> RunFolder:
    name = request.query_params.get("run") or next(iter(runs))
    if name not in runs:
        raise InputError(f"run: found {name[:100]!r}, expected one of {', '.join(runs)}")
    return runs[name]


def _batch(runs: dict[str, RunFolder], request: Request) -> tuple[RunFolder, Batch]:
    run, key = _run(runs, request), request.query_params.get("batch", "")
    if key not in run.batches:
        raise InputError(f"batch: found {key[:100]!r}, expected one of {', '.join(run.batches) or 'none'}")
    return run, run.batches[key]


def _whole(request: Request, name: str) -> int:
    text = request.query_params.get(name, "")
    if not text.isascii() or not text.isdigit() or len(text) > 12:
        raise InputError(f"{name}: found {text[:20]!r}, expected the number of a row")
    return int(text)
