"""Reward function of OpenRLHF for one turn: --reward.remote_url docs/examples/openrlhf_reward.py"""

from tasks.adapters.openrlhf import reward_func

__all__ = ["reward_func"]
