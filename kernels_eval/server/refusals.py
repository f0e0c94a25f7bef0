"""What a client is told that gets no verdict: each such reply as the OpenAPI page declares it, and as it is made from an exception."""

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError

from kernels_eval.errors import InfrastructureError
from kernels_eval.server.admission import RefusedError
from kernels_eval.server.schemas import NAMES, ErrorReply, InvalidReply, Misfit

UNAUTHORISED: dict[int | str, dict[str, Any]] = {
    401: {"model": ErrorReply, "description": "The server has a token, and it was not sent."}
}
REFUSALS: dict[int | str, dict[str, Any]] = UNAUTHORISED | {
    400: {"model": ErrorReply, "description": "The body is nested too deeply to be read."},
    408: {"model": ErrorReply, "description": "The request took too long to arrive."},
    413: {"model": ErrorReply, "description": "The request, or a source in it, is too long."},
    422: {
        "model": InvalidReply,
        "description": "The body is not JSON, a field is missing or wrong, or the problem is not a problem.",
    },
    429: {
        "model": ErrorReply,
        "description": "The queue is full.",
        "headers": {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer", "minimum": 1}}},
    },
    503: {
        "model": ErrorReply,
        "description": "The server is stopping, or the machine failed (KernelBench's names only).",
    },
}


def add_refusals(app: FastAPI) -> None:
    """Have these exceptions of any route become replies: 422, 429 and 503."""
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(RefusedError, _on_refused)
    app.add_exception_handler(InfrastructureError, _on_stopping)


async def _on_invalid(_: Request, error: Exception) -> Response:
    """Say what is wrong, without sending the client's own input back."""
    assert isinstance(error, RequestValidationError)
    found = [
        Misfit(
            loc=[_printable(part) for part in item["loc"] if part not in NAMES],
            msg=_printable(item["msg"]),
            type=item["type"],
        )
        for item in error.errors()
    ]
    return Response(InvalidReply(detail=found).model_dump_json(), status_code=422, media_type="application/json")


def _printable(part: Any) -> Any:
    """Names and messages may hold what a client sent, lone surrogates included, which no UTF-8 can carry."""
    return part.encode("utf-8", "backslashreplace").decode()[:1000] if isinstance(part, str) else part


async def _on_refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    body = ErrorReply(detail=str(error)).model_dump_json()
    headers = {"Retry-After": str(error.retry_after_s)}
    return Response(body, status_code=429, headers=headers, media_type="application/json")


async def _on_stopping(_: Request, error: Exception) -> Response:
    assert isinstance(error, InfrastructureError)
    return Response(ErrorReply(detail=str(error)).model_dump_json(), status_code=503, media_type="application/json")
