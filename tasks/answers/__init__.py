"""Answers of language models, read as a person would read them: reasoning apart, the kernel found."""
