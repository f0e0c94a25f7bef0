"""The engine of a completions server before it is opened."""

from typing import Any

from kernels_eval.errors import InputError
from tasks.pipeline.references import CheckpointRef
from tasks.rollout.config import RolloutConfig
from tasks.rollout.engines import Engine, stop_token_ids
from tasks.rollout.engines.health import unhealthy_servers
from tasks.rollout.engines.kind import EngineKind, Finding, Outcome


class OpenAiKind(EngineKind):
    """A server that somebody else has started, with weights that stay."""

    label = "completions server"
    takes_weights = False

    def open_team(self, policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
        """Raise InputError: the server holds one model."""
        raise InputError(
            "rollout.engine: openai has one model; expected agents that share weights, or the engine sglang"
        )

    def check(self, config: RolloutConfig, has_team: bool, is_here: bool) -> None:
        """Raise InputError if no server is named, or if it does not list its models."""
        if has_team:
            self.open_team(CheckpointRef(uri="", digest=""), None, config)
        if not config.openai.url.startswith(("http://", "https://")):
            raise InputError(
                f"rollout.openai.url: found {config.openai.url!r}, expected an address with its version, such as "
                "http://127.0.0.1:8000/v1"
            )
        unhealthy = unhealthy_servers([config.openai.url], "/models", config.openai.key)
        if unhealthy:
            raise InputError(f"rollout.openai.url: expected a server that lists its models: {unhealthy[0]}")

    def look(self, config: RolloutConfig, is_here: bool) -> Finding:
        """Say whether the server lists its models."""
        try:
            self.check(config, False, is_here)
        except InputError as error:
            return Finding(Outcome.FAILED, str(error), "start the server, or correct rollout.openai.url")
        return Finding(Outcome.OK, f"{config.openai.url} answers; its weights are not compared with the checkpoint")


def open_openai(policy: CheckpointRef, tokenizer: Any, config: RolloutConfig) -> Engine:
    """Return the engine; the server has to hold this policy."""
    from transformers import AutoConfig

    from tasks.rollout.engines.openai.engine import CompletionsEngine

    shape: Any = AutoConfig.from_pretrained(str(policy.path))
    stops = stop_token_ids(policy.path, tokenizer)
    return CompletionsEngine(config.openai, stops, int(shape.max_position_embeddings))


ENGINE = OpenAiKind(open_openai)
