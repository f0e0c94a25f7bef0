"""Models: the policy's model (`policy`), tokenizer, chat templates, and conversations as token ids (`chat`)."""
