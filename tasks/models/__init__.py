"""The policy's model, tokenizer, chat template and checkpoints."""
