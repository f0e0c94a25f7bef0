"""SFT of agents: each starts from its own model."""

from flows.settings.configuration import RunConfig
from flows.sft import model_of


def test_an_agent_starts_from_the_model_that_it_names_or_from_the_runs() -> None:
    agents = {
        "generator": {"turns": "first", "shown": "problem"},
        "optimizer": {"turns": "later", "shown": "kernel", "pretrained": "models/small"},
    }
    config = RunConfig.model_validate(
        {"model": {"pretrained": "models/large", "dtype": "bfloat16"}, "rollout": {"episode": {"agents": agents}}}
    )
    assert model_of(config, "generator") == config.model
    assert model_of(config, "optimizer") == config.model.model_copy(update={"pretrained": "models/small"})
    assert model_of(config, "optimizer").dtype == "bfloat16"
