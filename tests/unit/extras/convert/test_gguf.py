"""`kernelmill policy convert MODEL.gguf FOLDER`: weights, tokenizer and chat template of a GGUF that the test writes itself."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from extras.convert.convert import ConvertOptions, prepare
from kernels_eval.errors import InputError
from tasks.models.chat_templates import recognised_family
from tasks.models.policy import load_policy
from tasks.models.tokenizer import load_tokenizer

gguf = pytest.importorskip("gguf")

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'"
    " }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def trained_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["tl.load(x_ptr + offsets, mask=mask)\n"] * 9, trainer)
    return tokenizer


def interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """llama.cpp's order of the rows of q and k: the two halves of each head's rotary dimensions alternate."""
    rows, columns = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=320, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, rms_norm_eps=1e-5, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(shape)


@pytest.fixture(scope="module")
def file(model: LlamaForCausalLM, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer: Any = gguf.GGUFWriter(path, "llama")
    config = model.config
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(10000.0)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    _write_tokenizer(writer)
    _write_weights(writer, model)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _write_tokenizer(writer: Any) -> None:
    made = trained_tokenizer()
    tokens = [token for token, _ in sorted(made.get_vocab().items(), key=lambda item: item[1])]
    tokens += [f"<unused{number}>" for number in range(320 - len(tokens))]
    merges = list(_merges(made))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token in SPECIAL else 1 for token in tokens])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_pad_token_id(tokens.index("<|im_end|>"))
    writer.add_unk_token_id(tokens.index("<|endoftext|>"))
    writer.add_chat_template(TEMPLATE)


def _merges(tokenizer: Tokenizer) -> list[str]:
    import json

    found = json.loads(tokenizer.to_str())["model"]["merges"]
    return [pair if isinstance(pair, str) else " ".join(pair) for pair in found]


def _write_weights(writer: Any, model: LlamaForCausalLM) -> None:
    state, config = model.state_dict(), model.config
    writer.add_tensor("token_embd.weight", state["model.embed_tokens.weight"].numpy())
    writer.add_tensor("output_norm.weight", state["model.norm.weight"].numpy())
    for layer in range(config.num_hidden_layers):
        for name, short in NAMES.items():
            weight = state[f"model.layers.{layer}.{name}.weight"]
            if short in ("attn_q", "attn_k"):
                weight = interleaved(
                    weight, config.num_attention_heads if short == "attn_q" else config.num_key_value_heads
                )
            writer.add_tensor(f"blk.{layer}.{short}.weight", weight.contiguous().numpy())


def test_the_folder_is_the_same_model(model: LlamaForCausalLM, file: Path, tmp_path: Path) -> None:
    conversion = prepare(file, ConvertOptions.model_validate({"dtype": "float32"}))
    assert conversion.memory.weights == 4 * sum(parameter.numel() for parameter in model.parameters())
    conversion.write(tmp_path / "folder")
    tokens = torch.arange(3, 40).unsqueeze(0)
    with torch.no_grad():
        expected, found = model(tokens).logits, load_policy(tmp_path / "folder")(tokens).logits
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)


def test_the_tokenizer_and_its_template_are_those_of_the_file(file: Path, tmp_path: Path) -> None:
    prepare(file, ConvertOptions()).write(tmp_path / "folder")
    tokenizer = load_tokenizer(tmp_path / "folder")
    text = "tl.load(x_ptr + offsets, mask=mask)\n"
    assert tokenizer.encode(text) == trained_tokenizer().encode(text).ids
    family = recognised_family(tokenizer)
    assert family is not None
    assert family.name == "qwen"


def test_a_damaged_file_is_refused_in_a_sentence(file: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(file.read_bytes()[:200])
    with pytest.raises(InputError, match=r"cut\.gguf: not a readable GGUF file"):
        prepare(cut, ConvertOptions())


def test_megatron_needs_two_steps(file: Path) -> None:
    with pytest.raises(InputError, match="converted to huggingface first"):
        prepare(file, ConvertOptions.model_validate({"to": "torch_dist"}))
