"""Tokenizer of a policy trained from scratch: byte-level BPE over whole code lines, in Hugging Face format.

The pre-tokenizer cuts text after each run of newlines and nowhere else: a merge can cover a line with its indentation
and its line end. On generated kernels sequences are about four times shorter than with the usual cut at words; that
lets a model of half a million parameters learn in a minute. Text that no merge covers is encoded as bytes.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from kernels_eval.errors import InputError, first_line
from tasks.models.chat_templates import Role
from tasks.models.disk_errors import disk_errors

START = "<|im_start|>"
END_OF_TURN = "<|im_end|>"
PADDING = "<|endoftext|>"
SPECIAL_TOKENS = (START, END_OF_TURN, PADDING)

LINE = r"[^\n]*\n+|[^\n]+"
"""One piece of the pre-tokenizer: a line with the newlines that end it."""

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)
"""ChatML as Qwen's, less the newline after a turn's end: a message costs three tokens."""

SMALLEST_VOCABULARY = 256 + len(SPECIAL_TOKENS)


def train_tokenizer(texts: Iterable[str], vocabulary: int, destination: Path) -> PreTrainedTokenizerFast:
    """Learn at most `vocabulary` tokens (special ones and all 256 bytes included) from `texts`; save and return it.

    `texts` are the contents of messages. Raises InputError if there are none, or the vocabulary cannot hold the bytes.
    """
    if vocabulary < SMALLEST_VOCABULARY:
        raise InputError(f"model.vocabulary: found {vocabulary}, expected at least {SMALLEST_VOCABULARY}")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(LINE), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    remaining = iter(texts)
    first = next(remaining, None)
    if first is None:
        raise InputError("tokenizer: expected texts to learn from, found none")
    tokenizer.train_from_iterator(_with_role_headers(chain([first], remaining)), trainer=trainer)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=END_OF_TURN,
        pad_token=PADDING,
        additional_special_tokens=[START],
        clean_up_tokenization_spaces=False,
    )
    wrapped.chat_template = CHAT_TEMPLATE
    destination.mkdir(parents=True, exist_ok=True)
    with disk_errors(destination):
        wrapped.save_pretrained(str(destination))
    return wrapped


def load_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """Load the tokenizer of a policy; raises InputError if there is none, or it has no chat template."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(str(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected a tokenizer in Hugging Face format: {first_line(error)}") from error
    if not tokenizer.chat_template:
        raise InputError(f"{path}: expected a tokenizer with a chat template, found none")
    return tokenizer


def _with_role_headers(texts: Iterable[str]) -> Iterator[str]:
    """Yield each text and one header per role: as frequent as messages, headers become one token each."""
    for text in texts:
        yield text
        yield from (f"{role}\n" for role in Role)
