"""Application of an HTTP server, without its routes: refusals, the token in the schema, and the page `/docs`."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import Depends, FastAPI
from fastapi.responses import HTMLResponse
from fastapi.security import HTTPBearer

from kernels_eval.server.documentation import POLICY, documentation
from kernels_eval.server.gate import add_refusals
from kernels_eval.verdict import JUDGE_VERSION

LINES = "application/x-ndjson"
"""Media type of a reply of one JSON object a line."""


def open_application(
    title: str,
    summary: str,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
    *,
    has_token: bool,
    streaming: tuple[str, str],
) -> FastAPI:
    """Return the application; `streaming`: path and method of the route whose reply is `LINES`."""
    app = FastAPI(
        title=title,
        version=JUDGE_VERSION,
        summary=summary,
        lifespan=lifespan,
        docs_url=None,  # the framework's pages load scripts from other hosts
        redoc_url=None,
        dependencies=[Depends(HTTPBearer(auto_error=False))] if has_token else [],  # declared here, checked in the gate
    )
    add_refusals(app)
    app.openapi = lambda: _with_lines_named(FastAPI.openapi(app), *streaming)

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:  # pyright: ignore[reportUnusedFunction]  # the framework calls it
        page = documentation(app.openapi(), has_token=has_token)
        return HTMLResponse(page, headers={"Content-Security-Policy": POLICY})

    return app


def _with_lines_named(schema: dict[str, Any], path: str, method: str) -> dict[str, Any]:
    """Declare a reply as lines: the framework knows one media type for all replies of a route."""
    content: dict[str, Any] = schema["paths"][path][method]["responses"]["200"]["content"]
    if "application/json" in content:
        content[LINES] = content.pop("application/json")
    return schema
