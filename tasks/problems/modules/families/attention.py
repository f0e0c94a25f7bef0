"""Attention of given queries, keys and values: with softmax, causal, of several heads, with ReLU instead of softmax.

plain: one kernel; a program has a block of queries, and goes over the keys with a running maximum and sum.
"""

from tasks.problems.modules.convolution_texts import block
from tasks.problems.modules.draw import Draw
from tasks.problems.modules.pair import Family, ModulePair
from tasks.problems.modules.text import Input, Module, kernel_text, problem_text

_TITLES = {
    "attention": "a scaled dot-product attention",
    "causal_attention": "a causal scaled dot-product attention",
    "multi_head_attention": "an attention of several heads",
    "relu_attention": "an attention with ReLU in place of softmax",
}
_NAMES = (("q", "k", "v"), ("Q", "K", "V"), ("query", "key", "value"))


def draw(rng: Draw, unseen: frozenset[str]) -> ModulePair:
    """Return a pair of one attention."""
    operator = rng.choice(rng.unless(FAMILY.operators, unseen, str))
    names, rank = rng.choice(_NAMES), rng.pick(3, 4)
    heads, length, size = rng.pick(2, 4, 8), rng.pick(64, 128, 256, 200, 512), rng.pick(16, 32, 64)
    batch = rng.pick(1, 2, 4, 8)
    constants = [("batch_size", batch), ("num_heads", heads), ("seq_len", length), ("head_dim", size)]
    if operator == "multi_head_attention":
        dims = ("batch_size", "seq_len", "num_heads * head_dim")
    elif rank == 3:
        dims = ("batch_size", "seq_len", "head_dim")
        del constants[1]
    else:
        dims = ("batch_size", "num_heads", "seq_len", "head_dim")
    shape = ", ".join(dims)
    arguments, init, forward = _problem(rng, operator, names)
    module = Module(
        _TITLES[operator],
        tuple(Input(name, f"torch.randn({shape})", meaning=f"Tensor of shape ({shape}).") for name in names),
        forward,
        arguments,
        init,
        tuple((name, str(value)) for name, value in constants),
    )
    return ModulePair(
        family=FAMILY.name,
        operator=operator,
        title=module.title,
        problem_source=problem_text(rng, module),
        kernel_source=kernel_text([_kernel(operator)], module, _host(operator, names), init),
        style="plain",
    )
