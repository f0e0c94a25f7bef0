"""A kernel in the user's whole model: is it still right there, and does it make the model slower?

The module that the kernel replaces is one class of the model's file. The file with the kernel in the place of that
class is judged against the file as it is, as a candidate whose other parts may call PyTorch: in the sandbox, on the
model's own inputs, with its weights. The kernel's class is built with the arguments that the model gives to the class.
"""

import ast
from collections.abc import Mapping
from typing import Any

from extras.generation.generate import VERIFICATION, VerifyingJudge
from kernels_eval.errors import InfrastructureError, InputError
from kernels_eval.frozen import FrozenModel
from kernels_eval.problem import Problem, check_problem_source
from kernels_eval.verdict import Status, TimingSource, Verdict

_KERNEL = "KernelOfModule"
"""Name of the kernel's class in the model's file."""
_NOISE = 0.02
"""Share by which two measurements of one model differ."""
_OF_PROBLEMS = ("get_inputs", "get_init_inputs")


class InModel(FrozenModel):
    """The model before and after, and the module alone."""

    status: Status
    """Of the whole model with the kernel in it; `correct`: its outputs are those of the model as it is."""
    before_ms: float | None
    """Time of the model as it is; none: not timed."""
    after_ms: float | None
    """Time of the model with the kernel in it."""
    module_before_ms: float | None
    module_after_ms: float | None
    estimated: bool
    """True: roofline estimates, made without a GPU."""
    message: str = ""
    """The judge's word for what is wrong; empty: nothing."""

    @property
    def helps(self) -> bool:
        """True if the model is right with the kernel, and no slower than without."""
        if self.status is not Status.CORRECT or self.before_ms is None or self.after_ms is None:
            return False
        return self.after_ms <= self.before_ms * (1 + _NOISE)

    @property
    def line(self) -> str:
        """One line of text."""
        mark = " (estimates)" if self.estimated else ""
        module, model = _times(self.module_before_ms, self.module_after_ms), _times(self.before_ms, self.after_ms)
        if self.status is not Status.CORRECT:
            return (
                f"the module {module}; in the model: {self.status.value}{f', {self.message}' if self.message else ''}"
            )
        end = "outputs equal" if self.helps else "outputs equal, but the model is slower"
        return f"the module {module}, the model {model}{mark}: {end}"


async def check_in_model(
    model: Problem,
    class_name: str,
    kernel_source: str,
    alone: Verdict,
    judge: VerifyingJudge,
    backend: str | None = None,
) -> InModel:
    """Judge the model with the kernel in the place of one class. `alone`: the verdict on the kernel itself.

    Raises InputError if the two files cannot be put together, InfrastructureError if the machine failed.
    """
    source = put_into(model.source, class_name, kernel_source)
    settings = {**VERIFICATION, "policy": "mixed"}
    verdict = await judge.evaluate_async(model, source, backend, settings)
    if verdict.is_fault:
        raise InfrastructureError(f"the model with the kernel in it could not be judged: {verdict.error_message}")
    return InModel(
        status=verdict.status,
        before_ms=verdict.reference_ms,
        after_ms=verdict.candidate_ms,
        module_before_ms=alone.reference_ms,
        module_after_ms=alone.candidate_ms,
        estimated=verdict.timing_source is not TimingSource.GPU,
        message=" ".join((verdict.error_message or verdict.rejection_reason or "").split())[:300],
    )


def check_model(model: Problem, class_name: str, where: str) -> None:
    """Raise InputError if a file is no model of which a class can be replaced."""
    check_problem_source(model.source, where)
    _class_in(ast.parse(model.source), class_name, where)


def put_into(model_source: str, class_name: str, kernel_source: str) -> str:
    """Return the model's file as a candidate, with the kernel's `ModelNew` in the place of one of its classes.

    Raises InputError if the model has no such class, or both files give one name to different things.
    """
    model, kernel = ast.parse(model_source), ast.parse(kernel_source)
    replaced = _class_in(model, class_name, "the model")
    own, others = _without_roles(kernel), _without_roles(model)
    defined, taken = _defined(own), _defined([node for node in others if node is not replaced])
    taken |= {class_name: ""}
    clash = next((name for name, dump in defined.items() if name in taken and taken[name] != dump), None)
    if clash is not None and clash != "ModelNew":
        raise InputError(f"kernel and model both define {clash}: expected other names in the kernel")
    kernel_body = [_Renamed({"ModelNew": _KERNEL}).visit(node) for node in own]
    alias = ast.parse(f"{class_name} = {_KERNEL}").body[0]
    model_body = [alias if node is replaced else _Renamed({"Model": "ModelNew"}).visit(node) for node in others]
    body = [*kernel_body, *model_body]
    futures = [node for node in body if isinstance(node, ast.ImportFrom) and node.module == "__future__"]
    ordered = [*futures, *(node for node in body if node not in futures)]
    return ast.unparse(ast.fix_missing_locations(ast.Module(ordered, []))) + "\n"


def _class_in(tree: ast.Module, name: str, where: str) -> ast.ClassDef:
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    if name == "Model":
        raise InputError(f"{where}: Model is the whole model; expected the name of one of its parts")
    if name not in classes:
        others = ", ".join(each for each in classes if each != "Model") or "none but Model"
        raise InputError(f"{where}: expected a class {name} at its top level, found {others}")
    return classes[name]


def _without_roles(tree: ast.Module) -> list[ast.stmt]:
    """Return a file's statements but for the functions of a problem, its docstring and what runs it as a program."""

    def is_left_out(node: ast.stmt) -> bool:
        is_role = isinstance(node, ast.FunctionDef) and node.name in _OF_PROBLEMS
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        return is_role or is_text or (isinstance(node, ast.If) and "__name__" in ast.unparse(node.test))

    return [node for node in tree.body if not is_left_out(node)]


def _defined(statements: list[ast.stmt]) -> dict[str, str]:
    """Return the names of a file's top level, each with what it stands for."""
    found: dict[str, str] = {}
    for node in statements:
        if isinstance(node, ast.Import | ast.ImportFrom):
            origin = node.module if isinstance(node, ast.ImportFrom) else ""
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = f"{origin}:{alias.name}"
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = ast.dump(node)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {target.id: ast.dump(node) for target in targets if isinstance(target, ast.Name)}
    return found


class _Renamed(ast.NodeTransformer):
    """Gives names of a file's top level other names."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._names.get(node.id, node.id)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        node.name = self._names.get(node.name, node.name)
        return self.generic_visit(node)


def _times(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "not timed"
    return f"{before:.4g} → {after:.4g} ms ({before / after:.2f}x)" if after > 0 else f"{before:.4g} → {after:.4g} ms"
