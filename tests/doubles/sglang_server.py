"""A double of SGLang's HTTP server (0.5.13) on the CPU: the same endpoints, fields and quirks, and faults on demand.

It samples with a real policy (transformers), or with a function of the prompt and the seed. As a program it takes the
arguments of `sglang.launch_server` that the pipeline gives: `python sglang_server.py --model-path P --port N …`.

Quirks that are SGLang's own: the length limit is looked at before the end of turn; log-probabilities come after the
temperature; requests wait while generation is paused, and /health is 503 meanwhile; the cache is flushed only when idle;
adapters have names of their own, and a request for one that is not there is refused;
every `*.safetensors` of a checkpoint is loaded; of a message of tensors only what is harmless is unpickled, and anything else
ends the process; a seed decides an answer's bits with `--enable-deterministic-inference` alone.
"""

import argparse
import asyncio
import base64
import copy
import io
import json
import os
import pickle
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse

GENERATE_FIELDS = {
    "rid", "text", "input_ids", "sampling_params", "return_logprob", "logprob_start_len", "top_logprobs_num",
    "token_ids_logprob", "return_text_in_logprobs", "stream", "routing_key", "extra_key", "priority", "log_metrics",
    "lora_path",
}  # fmt: skip
SAMPLING_FIELDS = {
    "max_new_tokens", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p",
    "frequency_penalty", "presence_penalty", "repetition_penalty", "min_new_tokens", "n", "ignore_eos",
    "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim", "custom_params", "sampling_seed",
}  # fmt: skip


@dataclass
class Faults:
    """Faults, each with a probability per `/generate`; and what is wrong altogether."""

    error: float = 0.0
    """HTTP 500."""
    hang: float = 0.0
    """No answer until the client leaves."""
    drop: float = 0.0
    """The connection breaks in the middle of the answer."""
    abort: float = 0.0
    """The request is aborted by somebody else."""
    nonsense: float = 0.0
    """One token's log-probability is missing."""
    keeps_weights: bool = False
    """Says that it has loaded new weights, labels its answers so, and goes on with the old ones."""
    forgets_label: bool = False
    """Loads new weights, labels its answers as before."""
    refuses_weights: bool = False
    seed: int = 0
    """Of the draws of the above."""


@dataclass
class Pending:
    """One request to be sampled."""

    rid: str
    input_ids: list[int]
    sampling: dict[str, Any]
    logprob_start_len: int
    answer: "asyncio.Future[dict[str, Any]]"
    cached_tokens: int
    policy: Any
    """The server's, or one of its adapters."""
    aborted: bool = False


@dataclass
class Drawn:
    """Draw of a policy: log-probabilities after the temperature."""

    token_ids: list[int]
    logprobs: list[float]


class ModelPolicy:
    """A checkpoint, sampled with the embedded engine's decoding."""

    def __init__(self, folder: str) -> None:
        from transformers import GenerationConfig

        from tasks.models.policy import load_policy

        self.model: Any = load_policy(folder).eval()
        self.context_tokens = int(self.model.config.max_position_embeddings)
        eos = GenerationConfig.from_pretrained(folder).eos_token_id
        self.eos = set(eos if isinstance(eos, list) else [eos])

    def load(self, folder: str) -> None:
        """In place, from every safetensors file. (Not through transformers, whose loading is not made for threads.)"""
        from safetensors.torch import load_file

        found = {}
        for file in Path(folder).glob("*.safetensors"):
            if not file.name.startswith("model"):
                raise KeyError(f"'{file.stem}' of {file.name} is no parameter of the model")
            found |= load_file(file)
        self.load_tensors(found, whole=True)

    def load_tensors(self, found: dict[str, Any], whole: bool = False) -> None:
        """Some of the weights, or all of them."""
        report = self.model.load_state_dict(found, strict=False)
        missing = whole and set(report.missing_keys) - {"lm_head.weight"}
        if not found or report.unexpected_keys or missing:
            raise RuntimeError(f"other weights than the model's: {report}")

    def adapted(self, folder: str) -> "ModelPolicy":
        """Return the same policy with an adapter: a product of two matrices is added to each of its modules."""
        from safetensors.torch import load_file

        settings = json.loads((Path(folder) / "adapter_config.json").read_text())
        factors = load_file(Path(folder) / "adapter_model.safetensors")
        other = copy.copy(self)
        other.model = copy.deepcopy(self.model)
        weights = dict(other.model.named_parameters())
        for name, first in factors.items():
            if ".lora_A." in name:
                second = factors[name.replace(".lora_A.", ".lora_B.")]
                weights[name.replace(".lora_A.", ".")].data += settings["lora_alpha"] / settings["r"] * (second @ first)
        return other

    def sample(self, group: Sequence[Pending], ended: Callable[[Pending, Drawn], None]) -> None:
        from tasks.rollout.config import SamplingConfig
        from tasks.rollout.engines.local.decoding import decode_batch

        wanted = group[0].sampling
        top_k = wanted.get("top_k", -1)
        sampling = SamplingConfig(
            temperature=wanted.get("temperature", 1.0),
            top_p=wanted.get("top_p", 1.0),
            top_k=0 if top_k == -1 else top_k,
            max_new_tokens=wanted["max_new_tokens"],
        )
        stops = frozenset(wanted.get("stop_token_ids") or ()) | self.eos

        def hand_over(index: int, generation: Any) -> None:
            request = group[index]
            drawn = Drawn(list(generation.token_ids), list(generation.logprobs))
            if sampling.temperature not in (0, 1):
                sequence = [*request.input_ids, *drawn.token_ids]
                drawn.logprobs = self.score(sequence, sampling.temperature)[len(request.input_ids) - 1 :]
            ended(request, drawn)

        decode_batch(
            self.model,
            [tuple(request.input_ids) for request in group],
            [request.sampling.get("sampling_seed", 42) for request in group],
            sampling,
            stops,
            on_ended=hand_over,
            cancelled=lambda: all(request.aborted for request in group),
        )

    def score(self, ids: list[int], temperature: float = 1.0) -> list[float]:
        """Of every token but the first."""
        import torch

        with torch.inference_mode():
            logits = self.model(input_ids=torch.tensor([ids])).logits[0, :-1].float() / temperature
        return logits.log_softmax(-1).gather(1, torch.tensor(ids[1:]).unsqueeze(1))[:, 0].tolist()


class ScriptedPolicy:
    """Answers at once: token ids as a function of the prompt and the seed."""

    def __init__(self, respond: Callable[[list[int], int], list[int]], context_tokens: int = 4096) -> None:
        self.respond = respond
        self.context_tokens = context_tokens

    def load(self, folder: str) -> None:
        pass

    def load_tensors(self, found: dict[str, Any], whole: bool = False) -> None:
        pass

    def adapted(self, folder: str) -> "ScriptedPolicy":
        return self

    def sample(self, group: Sequence[Pending], ended: Callable[[Pending, Drawn], None]) -> None:
        for request in group:
            ids = self.respond(request.input_ids, request.sampling["sampling_seed"])
            ids = ids[: request.sampling["max_new_tokens"]]
            ended(request, Drawn(ids, [-0.5] * len(ids)))

    def score(self, ids: list[int], temperature: float = 1.0) -> list[float]:
        return [-1.0] * (len(ids) - 1)


@dataclass
class Double:
    """The server's state and its endpoints (`app`)."""

    policy: Any
    model_path: str
    weight_version: str = "default"
    faults: Faults = field(default_factory=Faults)
    healthy_after: int = 1
    """/health is 503 so many times first: a cold server's."""
    deterministic: bool = False
    """Each request on its own: the bits of its answer do not depend on which others happen to be there."""
    tp_size: int = 1

    def __post_init__(self) -> None:
        self.random = random.Random(self.faults.seed)
        self.requests: list[dict[str, Any]] = []
        self.cached_tokens: list[int] = []
        self.calls: list[str] = []
        self.aborted: list[str] = []
        self.paused = False
        self.active: dict[str, Pending] = {}
        self.prefixes: list[tuple[int, ...]] = []
        self.weights_lock = threading.Lock()
        self.adapters: dict[str, Any] = {}
        self.batcher: asyncio.Task[None] | None = None
        self.app = FastAPI()
        for path, methods, endpoint in (
            ("/health", ["GET"], self.health),
            ("/health_generate", ["GET"], self.health),
            ("/model_info", ["GET"], self.model_info),
            ("/server_info", ["GET"], self.server_info),
            ("/generate", ["POST", "PUT"], self.generate),
            ("/abort_request", ["POST"], self.abort_request),
            ("/pause_generation", ["POST"], self.pause_generation),
            ("/continue_generation", ["POST"], self.continue_generation),
            ("/flush_cache", ["GET", "POST"], self.flush_cache),
            ("/update_weights_from_disk", ["POST"], self.update_weights_from_disk),
            ("/update_weights_from_tensor", ["POST"], self.update_weights_from_tensor),
            ("/update_weight_version", ["POST"], self.update_weight_version),
            ("/v1/models", ["GET"], self.models),
            ("/load_lora_adapter", ["POST"], self.load_lora_adapter),
            ("/unload_lora_adapter", ["POST"], self.unload_lora_adapter),
        ):
            self.app.add_api_route(path, endpoint, methods=methods, response_model=None)

    async def health(self) -> Response:
        self.healthy_after -= 1
        return Response(status_code=503 if self.healthy_after >= 0 or self.paused else 200)

    async def model_info(self) -> dict[str, Any]:
        return {"model_path": self.model_path, "is_generation": True, "weight_version": self.weight_version}

    async def server_info(self) -> dict[str, Any]:
        context = self.policy.context_tokens
        limits = {"max_total_num_tokens": 100_000, "max_req_input_len": context - 6, "page_size": 1}
        return limits | {"tp_size": self.tp_size, "version": "0.5.13"}

    async def generate(self, request: Request) -> Response:
        body = await request.json()
        arrived = time.monotonic()
        self.requests.append(body)
        sampling = body.get("sampling_params") or {}
        if unknown := (set(body) - GENERATE_FIELDS) | (set(sampling) - SAMPLING_FIELDS):
            return _refusal(f"unknown fields: {sorted(unknown)}")
        ids = body["input_ids"]
        if len(ids) + sampling["max_new_tokens"] > self.policy.context_tokens:
            return _refusal(f"Requested token count exceeds the model's context length of {self.policy.context_tokens}")
        if body.get("lora_path") not in (None, *self.adapters):
            return _refusal(f"Got LoRA adapter that has never been loaded: {body['lora_path']}")
        fault = self._draw_fault()
        if fault == "error":
            return Response("scheduler hit an exception", status_code=500)
        if fault == "hang":
            while not await request.is_disconnected():
                await asyncio.sleep(0.02)
            return _refusal("Request is disconnected from the client side")
        while self.paused:
            await asyncio.sleep(0.01)
        answer = await self._sample(body, ids, sampling, request, arrived)
        meta = answer["meta_info"]
        if fault == "abort":
            meta["finish_reason"] = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
        if fault == "nonsense":
            meta["output_token_logprobs"][-1][0] = None
        return _BrokenResponse(answer) if fault == "drop" else JSONResponse(answer)

    async def _sample(self, body: Any, ids: list[int], sampling: Any, request: Request, arrived: float) -> Any:
        if self.batcher is None:
            self.queue: asyncio.Queue[Pending] = asyncio.Queue()
            self.batcher = asyncio.ensure_future(self._batch())
        start = body.get("logprob_start_len", -1)
        reach = len(ids) - 1 if start < 0 else start
        shared = [_common_prefix(ids, known) for known in self.prefixes]
        pending = Pending(
            body.get("rid") or os.urandom(8).hex(), ids, sampling, start, asyncio.get_running_loop().create_future(),
            min(reach, max(shared, default=0)), self.adapters.get(body.get("lora_path"), self.policy),
        )  # fmt: skip
        self.active[pending.rid] = pending
        self.queue.put_nowait(pending)
        try:
            while not pending.answer.done():
                await asyncio.wait([pending.answer], timeout=0.05)
                if await request.is_disconnected():
                    self._abort(pending)
        finally:
            self.active.pop(pending.rid, None)
        answer = pending.answer.result()
        self.cached_tokens.append(pending.cached_tokens)
        answer["meta_info"]["e2e_latency"] = time.monotonic() - arrived
        return answer

    async def _batch(self) -> None:
        """Run what has arrived, together where the sampling is the same."""
        loop = asyncio.get_running_loop()
        while True:
            waiting = [await self.queue.get()]
            await asyncio.sleep(0.002)
            while not self.queue.empty():
                waiting.append(self.queue.get_nowait())
            groups: dict[str, list[Pending]] = {}
            for pending in waiting:
                shape = {key: value for key, value in pending.sampling.items() if key != "sampling_seed"}
                alone = pending.rid if self.deterministic else ""
                key = f"{id(pending.policy)} {json.dumps(shape, sort_keys=True)} {alone}"
                groups.setdefault(key, []).append(pending)

            def ended(pending: Pending, drawn: Drawn) -> None:
                answer = self._answer(pending, drawn)
                loop.call_soon_threadsafe(self._hand_over, pending, answer)

            def run(group: list[Pending], ended: Any = ended) -> None:
                with self.weights_lock:
                    group[0].policy.sample(group, ended)

            for group in groups.values():
                await asyncio.to_thread(run, group)

    def _hand_over(self, pending: Pending, answer: dict[str, Any]) -> None:
        if not pending.answer.done():
            self.prefixes.append((*pending.input_ids, *answer["output_ids"]))
            pending.answer.set_result(answer)

    def _answer(self, pending: Pending, drawn: Drawn, finish: dict[str, Any] | None = None) -> dict[str, Any]:
        ids, last = drawn.token_ids, drawn.token_ids[-1] if drawn.token_ids else None
        if finish is None:
            limit = pending.sampling["max_new_tokens"]
            finish = {"type": "length", "length": limit} if len(ids) >= limit else {"type": "stop", "matched": last}
        scored: list[list[Any]] = []
        start = pending.logprob_start_len
        if start >= 0 and ids:
            scores = [None, *pending.policy.score(pending.input_ids)[start:]]
            scored = [[value, token, None] for value, token in zip(scores, pending.input_ids[start:], strict=True)]
        return {
            "text": "never to be looked at",
            "output_ids": list(ids),
            "meta_info": {
                "id": pending.rid,
                "finish_reason": finish,
                "prompt_tokens": len(pending.input_ids),
                "completion_tokens": len(ids),
                "cached_tokens": pending.cached_tokens,
                "weight_version": self.weight_version,
                "num_retractions": 0,
                "input_token_logprobs": scored,
                "output_token_logprobs": [[p, token, None] for p, token in zip(drawn.logprobs, ids, strict=True)],
                "output_token_logprobs_length": len(ids),
            },
        }

    def _abort(self, pending: Pending) -> None:
        pending.aborted = True
        self.aborted.append(pending.rid)
        if not pending.answer.done():
            finish = {"type": "abort", "message": "Aborted", "status_code": None, "err_type": None}
            pending.answer.set_result(self._answer(pending, Drawn([], []), finish))

    async def abort_request(self, request: Request) -> Response:
        body = await request.json()
        for pending in list(self.active.values()):
            if body.get("abort_all") or (body.get("rid") and pending.rid.startswith(body["rid"])):
                self._abort(pending)
        self.calls.append("abort_request")
        return Response(status_code=200)

    async def pause_generation(self, request: Request) -> dict[str, Any]:
        assert (await request.json()).get("mode", "abort") == "abort"
        self.calls.append("pause_generation")
        self.paused = True
        for pending in list(self.active.values()):
            self._abort(pending)
        return {"message": "Generation paused successfully.", "status": "ok"}

    async def continue_generation(self) -> dict[str, Any]:
        self.calls.append("continue_generation")
        self.paused = False
        return {"message": "Generation continued successfully.", "status": "ok"}

    async def flush_cache(self) -> Response:
        self.calls.append("flush_cache")
        if self.active:
            return Response("Flush cache failed.\n", status_code=400)
        self.prefixes.clear()
        return Response("Cache flushed.\n")

    async def update_weights_from_disk(self, request: Request) -> Response:
        body = await request.json()
        self.calls.append("update_weights_from_disk")
        try:
            if self.faults.refuses_weights:
                raise RuntimeError("not these")
            if body.get("flush_cache", True) and self.active:
                os._exit(1)  # `assert flush_cache_success` ends the scheduler
            if not self.faults.keeps_weights:
                await asyncio.to_thread(self._load, body["model_path"])
        except Exception as error:  # noqa: BLE001 - as the server does
            message = f"Failed to update weights: {error!r}.\nRolling back to original weights."
            return JSONResponse({"success": False, "message": message, "num_paused_requests": 0}, status_code=400)
        self.model_path = body["model_path"]
        if body.get("weight_version") is not None and not self.faults.forgets_label:
            self.weight_version = body["weight_version"]
        return JSONResponse(
            {"success": True, "message": "Succeeded to update model weights.", "num_paused_requests": 0}
        )

    async def update_weights_from_tensor(self, request: Request) -> Response:
        body = await request.json()
        self.calls.append("update_weights_from_tensor")
        if self.faults.refuses_weights:
            return JSONResponse({"success": False, "message": "not these"}, status_code=400)
        if len(body["serialized_named_tensors"]) != self.tp_size or (body.get("flush_cache", True) and self.active):
            os._exit(1)  # the scheduler catches nothing here
        last = base64.b64decode(body["serialized_named_tensors"][-1], validate=True)
        named = dict(SafeUnpickler(io.BytesIO(last)).load())
        if not self.faults.keeps_weights:
            await asyncio.to_thread(self._load_tensors, named)
        if body.get("weight_version") is not None and not self.faults.forgets_label:
            self.weight_version = body["weight_version"]
        return JSONResponse({"success": True, "message": "Success"})

    async def update_weight_version(self, request: Request) -> dict[str, Any]:
        self.weight_version = (await request.json())["new_version"]
        return {"success": True, "message": "", "new_version": self.weight_version}

    async def models(self) -> dict[str, Any]:
        base = {"id": self.model_path, "parent": None}
        return {"data": [base, *({"id": name, "parent": self.model_path} for name in self.adapters)]}

    async def load_lora_adapter(self, request: Request) -> Response:
        body = await request.json()
        self.calls.append("load_lora_adapter")
        if body["lora_name"] in self.adapters:
            return JSONResponse({"success": False, "error_message": "it is already loaded"}, status_code=400)
        self.adapters[body["lora_name"]] = await asyncio.to_thread(self.policy.adapted, body["lora_path"])
        return JSONResponse({"success": True, "error_message": ""})

    async def unload_lora_adapter(self, request: Request) -> Response:
        body = await request.json()
        self.calls.append("unload_lora_adapter")
        if self.adapters.pop(body["lora_name"], None) is None:
            return JSONResponse({"success": False, "error_message": "it does not exist"}, status_code=400)
        return JSONResponse({"success": True, "error_message": ""})

    def _load(self, folder: str) -> None:
        with self.weights_lock:
            self.policy.load(folder)

    def _load_tensors(self, named: dict[str, Any]) -> None:
        with self.weights_lock:
            self.policy.load_tensors(named)

    def _draw_fault(self) -> str | None:
        draw = self.random.random()
        for name in ("error", "hang", "drop", "abort", "nonsense"):
            draw -= getattr(self.faults, name)
            if draw < 0:
                return name
        return None


class SafeUnpickler(pickle.Unpickler):
    """Unpickles what the server's own does, of what can be in a message of tensors."""

    ALLOWED = ("builtins.", "collections.", "copyreg.", "torch.", "multiprocessing.reduction.")

    def find_class(self, module: str, name: str) -> Any:
        if not f"{module}.".startswith(self.ALLOWED) or (module, name) == ("builtins", "eval"):
            raise RuntimeError(f"Blocked unsafe class loading ({module}.{name})")
        return super().find_class(module, name)


class _BrokenResponse(Response):
    """Half of an answer."""

    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__(json.dumps(answer), media_type="application/json")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        half = self.body[: len(self.body) // 2]
        await send({"type": "http.response.body", "body": half, "more_body": True})


class RunningDouble:
    """A double that listens on a free port, from a thread of this process. A context manager."""

    def __init__(self, double: Double) -> None:
        self.double = double
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.server = uvicorn.Server(_uvicorn_config(double, timeout_graceful_shutdown=1))
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [self.socket]}, daemon=True)

    def __enter__(self) -> "RunningDouble":
        self.thread.start()
        while not self.server.started:
            time.sleep(0.005)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.server.should_exit = self.server.force_exit = True
        self.thread.join(10)
        with suppress(OSError):
            self.socket.close()


def _uvicorn_config(double: Double, **settings: Any) -> uvicorn.Config:
    return uvicorn.Config(double.app, log_level="error", timeout_keep_alive=5, lifespan="off", **settings)


def _common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    length = 0
    for a, b in zip(left, right, strict=False):
        if a != b:
            break
        length += 1
    return length


def _refusal(message: str) -> Response:
    return JSONResponse({"error": {"message": message}}, status_code=400)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--weight-version", default="default")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--enable-deterministic-inference", action="store_true")
    parser.add_argument("--die-before-start", action="store_true")
    parser.add_argument("--child", action="store_true", help="start a child, as the scheduler is one")
    arguments = parser.parse_args()
    if arguments.die_before_start:
        raise SystemExit("CUDA error: no kernel image is available")
    if arguments.child:
        import subprocess
        import sys

        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        print(f"child {child.pid}", flush=True)
    double = Double(
        ModelPolicy(arguments.model_path),
        arguments.model_path,
        arguments.weight_version,
        deterministic=arguments.enable_deterministic_inference,
    )
    settings = _uvicorn_config(double, host=arguments.host, port=arguments.port)
    uvicorn.Server(settings).run()


if __name__ == "__main__":
    main()
