"""The policy's model, tokenizer, chat template and checkpoints.

`messages.Message`; `tokenizer.train_tokenizer`, `load_tokenizer`; `chat.encode_prompt`, `encode_conversation`; `policy.new_policy`, `load_policy`,
`save_policy`, `check_architecture`.
"""
