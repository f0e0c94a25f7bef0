"""Supervised fine-tuning: judged pairs, then imitation of them."""
