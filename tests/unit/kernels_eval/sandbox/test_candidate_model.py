"""A candidate's session sends failures and ends if the judge hangs up; models are built, and their state is named."""

import socket
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from kernels_eval.sandbox.candidate_model import build_model, candidate_session, move_model, send_state
from kernels_eval.sandbox.candidate_source import CandidateError
from kernels_eval.sandbox.messages import receive_frame


@pytest.fixture
def ends() -> Any:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def test_a_failure_is_sent_and_ends_the_session(ends: Any) -> None:
    with candidate_session(ends[1]):
        raise CandidateError("compile_error", "load_error", "no")
    header, _ = receive_frame(ends[0])
    assert header == {"kind": "failed", "status": "compile_error", "category": "load_error", "message": "no"}


def test_a_judge_that_hangs_up_ends_it_quietly(ends: Any) -> None:
    ends[0].close()
    with candidate_session(ends[1]):
        receive_frame(ends[1])


def test_any_other_error_is_not_hidden(ends: Any) -> None:
    with pytest.raises(ZeroDivisionError), candidate_session(ends[1]):
        _ = 1 // 0


class Model(torch.nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = torch.nn.Parameter(torch.rand(width))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))


def test_a_model_is_built_with_its_seed_and_its_state_is_named(ends: Any) -> None:
    built, again = (build_model(SimpleNamespace(ModelNew=Model), [3], 5) for _ in range(2))
    assert torch.equal(built.scale, again.scale)
    state = send_state(ends[1], built)
    assert set(state) == {"scale", "steps"}
    header, _ = receive_frame(ends[0])
    assert header == {"kind": "ready", "state": {"scale": ["float32", [3]], "steps": ["int64", []]}, "plain": {}}


def test_what_was_drawn_otherwise_stands_for_what_is_registered(ends: Any) -> None:
    model, root = Model(3), torch.rand(3, dtype=torch.float64)
    state = send_state(ends[1], model, drawn={"scale": root})
    assert state["scale"] is root
    header, _ = receive_frame(ends[0])
    assert header["state"] == {"scale": ["float64", [3]], "steps": ["int64", []]}
    assert header["registered"] == {"scale": ["float32", [3]]}


def test_what_modules_share_stays_shared_on_another_device(ends: Any) -> None:
    model, table = torch.nn.ModuleList([torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)]), torch.rand(5)
    for layer in model:
        layer.register_buffer("table", table)
    model[1].bias = model[0].bias
    names = {*dict(model.named_parameters()), *dict(model.named_buffers())}
    move_model(model, "meta")
    assert model[0].table is model[1].table
    assert model[0].bias is model[1].bias
    assert model[0].table.is_meta
    assert set(send_state(ends[1], model)) == names


def test_a_lazy_parameter_has_no_form_yet(ends: Any) -> None:
    assert set(send_state(ends[1], torch.nn.Sequential(torch.nn.LazyLinear(4), torch.nn.Linear(4, 4)))) == {
        "1.weight",
        "1.bias",
    }


def test_plain_tensors_are_named_apart(ends: Any) -> None:
    model = Model(3)
    model.inner = torch.nn.Module()
    model.inner.h0, model.eps = torch.zeros(2, 4), torch.tensor(1.0)
    state = send_state(ends[1], model, with_plain=True)
    assert state["inner.h0"] is model.inner.h0
    assert receive_frame(ends[0])[0]["plain"] == {"inner.h0": ["float32", [2, 4]]}


def test_an_object_that_is_no_module_has_no_state(ends: Any) -> None:
    assert send_state(ends[1], build_model(SimpleNamespace(ModelNew=dict), [], 0)) == {}


def _leave(*_: Any) -> None:
    raise SystemExit(0)


@pytest.mark.parametrize(
    ("source", "category"),
    [
        (SimpleNamespace(), "missing_model"),
        (SimpleNamespace(ModelNew=Model(1)), "missing_model"),
        (SimpleNamespace(ModelNew=Model), "constructor_error"),
        (SimpleNamespace(ModelNew=type("ModelNew", (), {"__init__": _leave})), "constructor_error"),
    ],
)
def test_what_cannot_be_built_is_the_candidates_failure(source: Any, category: str) -> None:
    with pytest.raises(CandidateError) as failed:
        build_model(source, [], 0)
    assert failed.value.header["category"] == category
