"""Models: the policy's model, tokenizer, chat templates and checkpoints.

Public names: `chat_templates.Message`; `tokenizer.train_tokenizer`, `load_tokenizer`; `chat.encode_prompt`,
`encode_conversation`; `policy.new_policy`, `load_policy`, `save_policy`, `check_architecture`.
"""
