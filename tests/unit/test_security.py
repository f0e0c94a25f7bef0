"""Promises of docs/threat-model.md of files: none that we read can run code."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernels_eval.errors import InputError

ROOT = Path(__file__).parents[2]
SOURCES = [
    path for package in ("flows", "extras", "tasks", "kernels_eval") for path in sorted((ROOT / package).rglob("*.py"))
]
CODE_LOADERS = {
    "yaml.load", "yaml.full_load", "yaml.unsafe_load", "torch.load", "torch.save", "pickle.load", "pickle.loads", "joblib.load",
    "numpy.load", "np.load", "pd.read_pickle", "shelve.open", "marshal.loads",
}  # fmt: skip
FROM_THE_JUDGE = {"kernels_eval/tracing/process.py", "kernels_eval/gpu/candidate/process.py"}
"""The confined side of a candidate reads its job from the judge, which trusts nothing that comes back."""

OTHER_FORMATS = {
    "flows/settings/configuration.py: yaml.load",  # PyYAML's safe loader, which also refuses a key that stands twice
    "extras/convert/unpickling.py: torch.load",  # with an unpickler of its own, which imports nothing that a file names
    "extras/convert/mp_rank_sink.py: torch.save",  # Megatron's files are pickles
    "extras/convert/torch_dist_sink.py: torch.save",
}


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Yield the dotted name of every call, with the call."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def test_nothing_is_loaded_in_a_way_that_can_run_code():
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in SOURCES
        for name, _ in calls(path)
        if name in CODE_LOADERS and str(path.relative_to(ROOT)) not in FROM_THE_JUDGE
    }
    assert found == OTHER_FORMATS


def test_no_model_brings_code_of_its_own():
    trusting = [
        path
        for path in SOURCES
        for _, call in calls(path)
        if any(word.arg == "trust_remote_code" for word in call.keywords)
    ]
    assert trusting == []


def test_weights_that_are_not_safetensors_are_refused(tmp_path: Path):
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from tasks.models.policy import load_policy
    from tasks.update.critic import load_critic

    shape = Qwen3Config(
        vocab_size=32, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
        num_key_value_heads=1, head_dim=8,
    )  # fmt: skip
    model = Qwen3ForCausalLM(shape)
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    for load in (load_policy, lambda path: load_critic(path, "float32")):
        with pytest.raises(InputError, match="safetensors"):
            load(tmp_path)
