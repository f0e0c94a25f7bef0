"""Agent of OpenRLHF for several turns: --train.agent_func_path docs/examples/openrlhf_agent.py"""

from typing import Any

from openrlhf.utils.agent import AgentInstanceBase, MultiTurnAgentExecutor

from extras.adapters.openrlhf import KernelSteps


class AgentInstance(KernelSteps, AgentInstanceBase):
    """One conversation with the judge."""


class AgentExecutor(MultiTurnAgentExecutor):
    """Runs conversations."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Use the class above."""
        super().__init__(AgentInstance)
