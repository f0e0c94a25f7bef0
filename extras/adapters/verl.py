"""verl: the judge as a custom reward function, and the conversation with the judge as an agent loop (verl 0.9).

    reward.custom_reward_function.path=pkg://extras.adapters.verl reward.custom_reward_function.name=compute_score
    actor_rollout_ref.rollout.agent.agent_loop_config_path=…  # docs/examples/verl_agent_loops.yaml

The judge's address and the reward come from the environment (extras.adapters.scoring). verl has no sample without a
reward: on a fault of the machine both raise, and the batch is lost, rather than a kernel punished. The agent loop's
mask is 1 on the policy's own tokens; its reward is that of the best turn, and `turn_scores` has each turn's.
"""

from collections.abc import Iterable
from typing import Any

from extras.adapters.scoring import Scored, shared_scorer
from kernels_eval.errors import InfrastructureError

AGENT = "kernelmill"
"""Name of the agent loop, as in the column `agent_name`."""


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any] | None = None,
    **_: Any,
) -> dict[str, float]:
    """Return the score of one answer; `ground_truth` is the problem's source. Raises InfrastructureError on a fault."""
    scored = await shared_scorer().score_async(ground_truth, solution_str)
    return {"score": reward_or_raise(scored), **figures(scored)}


def verl_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows of extras.adapters.problem_rows with verl's columns: write them to Parquet as `data.train_files`."""
    return [
        {
            "data_source": "kernelmill",
            "agent_name": AGENT,
            "prompt": row["prompt"],
            "reward_model": {"style": "rule", "ground_truth": row["problem_source"]},
            "extra_info": {name: row[name] for name in ("problem_id", "problem_source", "level")},
        }
        for row in rows
    ]


def reward_or_raise(scored: Scored) -> float:
    """Return the reward. Raises InfrastructureError if the machine failed: nothing is known of the kernel."""
    if scored.reward is None:
        raise InfrastructureError(f"the kernel was not judged: {scored.verdict.error_message}")
    return scored.reward


def figures(scored: Scored) -> dict[str, float]:
    """Return figures of a verdict for the trainer's logs: the same names for every sample."""
    verdict = scored.verdict
    return {"correct": float(verdict.correct), "compiled": float(verdict.compiled), "speedup": verdict.speedup or 0.0}
