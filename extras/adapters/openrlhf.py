"""OpenRLHF: the judge as a reward function of one turn, and the conversation with it as an agent (OpenRLHF 0.11).

    --reward.remote_url docs/examples/openrlhf_reward.py      # one turn
    --train.agent_func_path docs/examples/openrlhf_agent.py   # several turns
    --data.label_key problem_source                           # both: the label is the problem's source

OpenRLHF has no sample without a reward: on a fault of the machine both raise, rather than punish a kernel. The judge's
address and the reward come from the environment (extras.adapters.scoring).
"""

import asyncio
import re
from collections.abc import Sequence
from typing import Any

from extras.adapters.kernel_episode import KernelEpisode
from extras.adapters.scoring import shared_scorer
from extras.adapters.verl import figures, reward_or_raise

_END_OF_TURN = re.compile(r"(?:\s*(?:<\|[^|>\s]+\|>|</s>|<end_of_turn>|<eos>))+\s*\Z")
"""Special tokens that end a turn: OpenRLHF decodes them into the text."""


def reward_func(queries: Sequence[str], prompts: Sequence[str], labels: Sequence[str], **_: Any) -> dict[str, Any]:
    """Return `rewards`, `scores` and `extra_logs` of answers; a query is prompt and answer."""
    import torch

    answers = [policy_text(query.removeprefix(prompt)) for query, prompt in zip(queries, prompts, strict=True)]
    scored = asyncio.run(shared_scorer().score_all(list(labels), answers))
    rewards = torch.tensor([reward_or_raise(one) for one in scored])
    logs = [figures(one) for one in scored]
    extra = {name: torch.tensor([entry[name] for entry in logs]) for name in logs[0]}
    return {"rewards": rewards, "scores": rewards, "extra_logs": extra}


class KernelSteps:
    """State of one conversation: the methods of OpenRLHF's AgentInstanceBase, which the example derives from."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Have no problem until `reset`."""
        self._episode: KernelEpisode | None = None

    async def reset(self, states: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Begin a conversation about the problem in `label`; the observation stays the prompt."""
        self._episode = KernelEpisode(states["label"], shared_scorer())
        return {"observation": states["observation"]}

    async def step(self, state_dict: dict[str, Any], **_: Any) -> dict[str, Any]:
        """Judge an answer. Raises InfrastructureError if the machine failed.

        OpenRLHF adds up the steps' rewards: each step gives what it improves on the turns before it, so that the sum is
        the reward of the best turn.
        """
        import torch

        assert self._episode is not None
        episode, action = self._episode, state_dict["action_text"]
        step = await episode.answer_async(policy_text(action))
        reward_or_raise(step.scored)
        feedback = (
            "" if step.reply is None else turn_text(state_dict["observation_text"], action, step.reply["content"])
        )
        return {
            "rewards": torch.tensor(episode.gain),
            "scores": torch.tensor(episode.reward),
            "environment_feedback": feedback,
            "done": step.reply is None,
            "sampling_params": state_dict.get("sampling_params"),
            "extra_logs": {name: torch.tensor(value) for name, value in figures(step.scored).items()},
        }


def policy_text(text: str) -> str:
    """Return an answer without the special tokens at its end."""
    return _END_OF_TURN.sub("", text)


def turn_text(observation: str, action: str, message: str) -> str:
    """Return the user's next message as the prompt writes one: ends the policy's turn, and opens its next one.

    The text around a message is read from the prompt itself: ChatML (Qwen) or Llama 3. Raises ValueError for another.
    """
    if "<|im_start|>" in observation:
        end = "" if action.rstrip().endswith("<|im_end|>") else "<|im_end|>"
        return f"{end}\n<|im_start|>user\n{message}<|im_end|>\n<|im_start|>assistant\n"
    if "<|start_header_id|>" in observation:
        end = "" if action.rstrip().endswith("<|eot_id|>") else "<|eot_id|>"
        header = "<|start_header_id|>{}<|end_header_id|>\n\n"
        return f"{end}{header.format('user')}{message}<|eot_id|>{header.format('assistant')}"
    raise ValueError("expected a prompt in ChatML or Llama 3's format")
