"""Reward function of OpenRLHF for one turn: --reward.remote_url docs/examples/openrlhf_reward.py"""

from extras.adapters.openrlhf import reward_func

__all__ = ["reward_func"]
