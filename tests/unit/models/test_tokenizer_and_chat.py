"""The tokenizer covers lines and loses nothing; conversations become the template's tokens, with loss where it belongs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from kernels_eval.errors import InputError
from tasks.models.chat import encode_conversation, encode_prompt
from tasks.models.chat_templates import Message, Role
from tasks.models.config import ModelConfig
from tasks.models.policy import new_policy, save_policy
from tasks.models.tokenizer import load_tokenizer, train_tokenizer

TEXTS = ["import torch\n    x = torch.relu(x)\n\n    return x\n", "import torch\nx = x + 1\n"] * 20


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory):
    return train_tokenizer(TEXTS, 512, tmp_path_factory.mktemp("tokenizer"))


def user(content: str) -> Message:
    return Message(role=Role.USER, content=content)


def assistant(content: str, *, trained: bool = True) -> Message:
    return Message(role=Role.ASSISTANT, content=content, trained=trained)


def test_a_token_covers_a_line_with_indentation_and_newlines(tokenizer) -> None:
    pieces = [tokenizer.decode([token]) for token in tokenizer(TEXTS[0])["input_ids"]]
    assert pieces == ["import torch\n", "    x = torch.relu(x)\n\n", "    return x\n"]


def test_a_message_costs_three_tokens(tokenizer) -> None:
    assert len(encode_prompt(tokenizer, [user("import torch\n")])) == 3 + 1 + 2


@given(text=st.text())
def test_any_text_survives(tokenizer, text: str) -> None:
    text = text.encode(errors="ignore").decode()
    assert tokenizer.decode(tokenizer(text)["input_ids"], clean_up_tokenization_spaces=False) == text


def test_same_texts_give_the_same_tokenizer(tokenizer, tmp_path: Path) -> None:
    again = train_tokenizer(TEXTS, 512, tmp_path)
    assert again.backend_tokenizer.to_str() == tokenizer.backend_tokenizer.to_str()


def test_loads_beside_a_model_as_it_was(tokenizer, tmp_path: Path) -> None:
    """A model's folder names an architecture with a tokenizer class of its own, which must not take over."""
    save_policy(
        new_policy(ModelConfig(vocabulary=512, hidden=8, heads=1, key_value_heads=1), tokenizer), tokenizer, tmp_path
    )
    for loaded in (AutoTokenizer.from_pretrained(tmp_path), load_tokenizer(tmp_path)):
        assert loaded(TEXTS[0])["input_ids"] == tokenizer(TEXTS[0])["input_ids"]
        assert loaded.chat_template == tokenizer.chat_template
        assert loaded.eos_token == "<|im_end|>"


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="expected texts to learn from"):
        train_tokenizer([], 512, tmp_path)
    with pytest.raises(InputError, match="found 100, expected at least 259"):
        train_tokenizer(TEXTS, 100, tmp_path)
    with pytest.raises(InputError, match="expected a tokenizer"):
        load_tokenizer(tmp_path / "nothing")


def test_loss_is_on_trained_messages_and_their_end_of_turn(tokenizer) -> None:
    messages = [user("import torch\n"), assistant("x = x + 1\n"), user("again"), assistant("return x")]
    encoded = encode_conversation(tokenizer, messages)
    learnt = [token for token, trained in zip(encoded.token_ids, encoded.loss_mask, strict=True) if trained]
    assert tokenizer.decode(learnt) == "x = x + 1\n<|im_end|>return x<|im_end|>"


contents = st.text(alphabet="ab \n\t<|>{}userassistant", min_size=1).filter(lambda text: text.strip())


@given(turns=st.lists(st.tuples(contents, contents, st.booleans()), min_size=1, max_size=4))
def test_tokens_are_the_templates_and_the_mask_is_exact(tokenizer, turns: list[tuple[str, str, bool]]) -> None:
    messages = [
        message
        for question, answer, trained in turns
        for message in (user(question), assistant(answer, trained=trained))
    ]
    if not any(message.trained for message in messages):
        with pytest.raises(InputError, match="at least one message with trained=True"):
            encode_conversation(tokenizer, messages)
        return
    encoded = encode_conversation(tokenizer, messages)
    plain = [{"role": message.role.value, "content": message.content} for message in messages]
    assert encoded.token_ids == tokenizer.apply_chat_template(plain, return_dict=False)
    learnt = [token for token, trained in zip(encoded.token_ids, encoded.loss_mask, strict=True) if trained]
    expected = "".join(message.content + "<|im_end|>" for message in messages if message.trained)
    # A newline that begins an answer can be one token with the header before it: then it is not learnt.
    assert tokenizer.decode(learnt).replace("\n", "") == expected.replace("\n", "")


@given(question=contents, answer=contents.filter(lambda text: not text.startswith("\n")))
def test_a_conversation_begins_with_its_prompt(tokenizer, question: str, answer: str) -> None:
    prompt = encode_prompt(tokenizer, [user(question)])
    whole = encode_conversation(tokenizer, [user(question), assistant(answer)])
    assert whole.token_ids[: len(prompt)] == prompt
    assert whole.loss_mask == [False] * len(prompt) + [True] * (len(whole.token_ids) - len(prompt))


def test_an_empty_trained_message_is_refused(tokenizer) -> None:
    with pytest.raises(InputError, match="message 1: expected content to learn"):
        encode_conversation(tokenizer, [user("x"), assistant(" ")])
