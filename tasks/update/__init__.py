"""The policy update: advantages, losses, and the DeepSpeed engine on Ray."""
