"""A double of a server with OpenAI's chat completions: answers from a script, in turn, with faults on demand.

As a program: `python openai_server.py --port N --script FILE`; the file is a JSON list of answers, each an object with
`text` (required), `delay_s`, `status` (an HTTP error instead), `finish_reason`. They are given out round and round.
With `take`, a pattern, the text's `{taken}` becomes what the pattern's group matches in the prompt.
"""

import argparse
import asyncio
import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

PROMPT_TOKENS, COMPLETION_TOKENS = 100, 40


@dataclass
class Double:
    """The server's state."""

    answers: Sequence[dict[str, Any]]
    key: str | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    address: str = ""


def create_app(double: Double) -> FastAPI:
    app = FastAPI()
    turns = itertools.count()

    @app.post("/v1/chat/completions")
    async def complete(request: Request) -> Response:
        body = await request.json()
        if double.key is not None and request.headers.get("authorization") != f"Bearer {double.key}":
            return JSONResponse({"error": {"message": "no such key"}}, 401)
        double.requests.append(body)
        answer = double.answers[next(turns) % len(double.answers)]
        await asyncio.sleep(answer.get("delay_s", 0.0))
        if "status" in answer:
            return JSONResponse({"error": {"message": answer["text"]}}, answer["status"])
        text = answer["text"]
        if "take" in answer:
            found = re.search(answer["take"], body["messages"][0]["content"])
            text = text.replace("{taken}", found[1] if found else "")
        message = {"role": "assistant", "content": text}
        completion = {
            "object": "chat.completion",
            "model": body["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": answer.get("finish_reason", "stop")}],
            "usage": {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS},
        }
        return Response(json.dumps(completion), media_type="application/json")  # lone surrogates stay escaped

    return app


@contextmanager
def openai_double(answers: Sequence[dict[str, Any]], key: str | None = None) -> Generator[Double]:
    """Serve in a thread of this process."""
    double = Double(answers, key)
    listener = socket.create_server(("127.0.0.1", 0))
    double.address = f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    server = uvicorn.Server(uvicorn.Config(create_app(double), log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, args=[[listener]], daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield double
    finally:
        server.should_exit = True
        thread.join(timeout=10)
        listener.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--script", type=Path, required=True)
    given = parser.parse_args()
    uvicorn.run(create_app(Double(json.loads(given.script.read_text()))), port=given.port, log_level="warning")
