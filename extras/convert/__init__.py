"""Checkpoints of other trainers: Megatron (`torch_dist`, `mp_rank_*`) ↔ Hugging Face, DeepSpeed ZeRO → Hugging Face.

Every format is read as whole Megatron weights, one at a time (`weights.Weight`), and written from them; a conversion is
a loop over the weights (`convert.py`). Only `zero.py` is read by the names of the Hugging Face model.
"""
