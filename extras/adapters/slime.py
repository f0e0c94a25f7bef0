"""slime: the judge as `custom_rm`, and a filter that drops groups on which the machine failed.

    --custom-rm-path extras.adapters.slime.kernel_reward
    --dynamic-sampling-filter-path extras.adapters.slime.keep_judged
    --label-key problem_source

The label is the problem's source; the judge's address and the reward come from the environment
(extras.adapters.scoring). On a fault the sample gets no reward, and the filter drops its whole group, which slime then
samples anew; without the filter a fault raises. slime is no package on the index: written against its source, and
tested against the signatures that its documentation of customization gives.
"""

import math
from collections.abc import Sequence
from typing import Any

from extras.adapters.scoring import Scored, shared_scorer
from extras.adapters.verl import figures, reward_or_raise

FILTER = "extras.adapters.slime.keep_judged"
_FAULT = "kernelmill_fault"


async def kernel_reward(args: Any, sample: Any, **_: Any) -> Any:
    """Return the reward of a sample, or the rewards of a list of samples.

    Raises InfrastructureError on a fault of the machine unless `keep_judged` is there to drop the group.
    """
    samples: Sequence[Any] = sample if isinstance(sample, list) else [sample]
    scored = await shared_scorer().score_all(
        [one.label for one in samples], [one.response for one in samples], [one.response_length for one in samples]
    )
    is_filtered = getattr(args, "dynamic_sampling_filter_path", None) == FILTER
    rewards = [_noted(one, found, is_filtered) for one, found in zip(samples, scored, strict=True)]
    return rewards if isinstance(sample, list) else rewards[0]


def keep_judged(args: Any, samples: Sequence[Any], **_: Any) -> bool:
    """Return False for a group on one of whose samples the machine failed: slime drops it and samples another."""
    flat = [one for sample in samples for one in (sample if isinstance(sample, list) else [sample])]
    return not any((one.metadata or {}).get(_FAULT) for one in flat)


def _noted(sample: Any, scored: Scored, is_filtered: bool) -> float:
    """Return a sample's reward, NaN for a fault, and note its figures in the sample."""
    sample.metadata = {**(sample.metadata or {}), "kernelmill": figures(scored)}
    if scored.reward is None and is_filtered:
        sample.metadata[_FAULT] = scored.verdict.error_message or "fault"
        return math.nan
    return reward_or_raise(scored)
