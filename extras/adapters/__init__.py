"""Our judge and environment in other people's trainers and tools: one small module for each, and the core they share.

`scoring` turns answers into rewards, `kernel_episode` has the turns of a conversation, `problem_rows` the problems as
rows of a data set. A module named after a peer is imported by its users alone; nothing else here imports a peer.
Everywhere a fault of the machine is a reward of None, which the peer masks, or an error; never a reward of zero.
"""
