"""verl's agent loop of a conversation with the judge (verl 0.9); see extras.adapters.verl.

A row needs the column `extra_info` of `verl_rows`. Messages become tokens in verl's own way (its continuous tokens).
"""

# The peer need not be installed where types are checked.
# pyright: reportMissingImports=false, reportUntypedBaseClass=false, reportUntypedClassDecorator=false
# pyright: reportUnknownParameterType=false
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

from extras.adapters.kernel_episode import KernelEpisode
from extras.adapters.problem_rows import problem_of_row
from extras.adapters.scoring import shared_scorer
from extras.adapters.verl import AGENT, figures
from kernels_eval.errors import InfrastructureError


@register(AGENT)
class KernelAgentLoop(AgentLoopBase):
    """Write a kernel, read the judge's feedback, write a better one."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> AgentLoopOutput:
        """Run one episode. Raises InfrastructureError if the machine failed on a turn."""
        episode = KernelEpisode(problem_of_row(kwargs["extra_info"]), shared_scorer())
        limit: int = self.rollout_config.response_length
        messages = episode.messages
        tokens: list[int] = await self.ct_build_initial_tokens(messages)
        prompt_length, request = len(tokens), uuid4().hex
        mask: list[int] = []
        logprobs: list[float] | None = None
        while episode.termination is None:
            output = await self.server_manager.generate(
                request_id=request, prompt_ids=tokens, sampling_params=sampling_params
            )
            merged, mask, logprobs = await self.ct_merge_assistant_token(
                tokens,
                output.token_ids,
                mask,
                logprobs if mask else ([] if output.log_probs else None),
                assistant_logprobs=output.log_probs or None,
            )
            tokens = merged.token_ids
            text = self.tokenizer.decode(output.token_ids, skip_special_tokens=True)
            await episode.answer_async(text, len(output.token_ids))
            if episode.termination is not None or len(mask) >= limit:
                break
            previous = [*messages, {"role": "assistant", "content": text}]
            messages = episode.messages
            merged, mask, logprobs = await self.ct_merge_context_msg(previous, messages, tokens, mask, logprobs)
            tokens = merged.token_ids
            if len(mask) >= limit:
                break
        return self._output(episode, tokens, prompt_length, mask, logprobs)

    def _output(
        self, episode: KernelEpisode, tokens: list[int], prompt_length: int, mask: list[int], logprobs: Any
    ) -> AgentLoopOutput:
        if episode.reward is None:
            raise InfrastructureError(f"the kernel was not judged: {episode.steps[-1].scored.verdict.error_message}")
        limit: int = self.rollout_config.response_length
        best = max(episode.steps, key=lambda step: step.scored.reward or 0.0)
        return AgentLoopOutput(
            prompt_ids=tokens[:prompt_length],
            response_ids=tokens[prompt_length:][:limit],
            response_mask=mask[:limit],
            response_logprobs=logprobs[:limit] if logprobs else None,
            reward_score=episode.reward,
            num_turns=2 * len(episode.steps),
            metrics=AgentLoopMetrics(),
            extra_fields={
                "turn_scores": episode.rewards,
                "tool_rewards": [],
                "reward_extra_info": {"score": episode.reward, **figures(best.scored)},
            },
        )
