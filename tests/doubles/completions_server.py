"""A double of vLLM's completions server on the standard library: the fields that the engine uses, and faults on demand.

It answers with tokens that follow from prompt and seed. `form`: `vllm`, `llama` or `text` (no token ids at all).
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EOS = 7


class CompletionsServer:
    """A context manager: the server, what it was asked, and the faults that are to come."""

    def __init__(self, form: str = "vllm", key: str = "") -> None:
        self.form, self.key = form, key
        self.asked: list[dict[str, Any]] = []
        self.faults: list[int] = []
        """Statuses of the next answers; then it works again."""
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(200, {"data": [{"id": "served"}]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.asked.append(body)
                if outer.faults:
                    self._answer(outer.faults.pop(0), {"error": "on demand"})
                else:
                    self._answer(200, outer.completion(body))

            def _answer(self, status: int, content: Any) -> None:
                if outer.key and self.headers["Authorization"] != f"Bearer {outer.key}":
                    status, content = 401, {"error": "no key"}
                text = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> "CompletionsServer":
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def completion(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the answer: the prompt's tokens backwards, rotated by the seed, then the end of turn if it fits."""
        prompt, turned = body["prompt"][::-1], body["seed"] % len(body["prompt"])
        tokens = [*prompt[turned:], *prompt[:turned], EOS][: body["max_tokens"]]
        reason = "stop" if tokens[-1] == EOS else "length"
        if self.form == "llama":  # leaves the end of turn out
            content = [{"id": token, "logprob": -0.5} for token in tokens if token != EOS]
            logprobs: dict[str, Any] = {"content": content}
        else:
            names = [f"token_id:{token}" if self.form == "vllm" else f" word{token}" for token in tokens]
            logprobs = {"tokens": names, "token_logprobs": [-0.25] * len(tokens)}
        return {"choices": [{"text": "…", "finish_reason": reason, "logprobs": logprobs}]}
