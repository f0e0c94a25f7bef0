"""Pointwise operators of FlagGems, whose kernels its own generator writes: it is run here, and its text is judged."""

import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from operators import Operator

_RANK = 2


def _plain(*given: Any, **_: Any) -> Any:
    """Stand for decorators: return the function, or what returns it."""
    return given[0] if given and callable(given[0]) else lambda made: made


def _generator(folder: Path) -> Any:
    """Import the generator and what it needs, without the package's own start, which looks for a GPU."""
    sys.path.insert(0, str(folder))
    made: dict[str, Any] = {}
    for name in ("", ".utils", ".ops", ".runtime", ".runtime.backend", ".utils.libentry", ".utils.device_info"):
        made[name] = sys.modules[f"flag_gems{name}"] = ModuleType(f"flag_gems{name}")
        made[name].__path__ = [str(folder.joinpath("flag_gems", *name.split(".")[1:]))]
    common = importlib.import_module("flag_gems.runtime.common")
    runtime, utils = made[".runtime"], made[".utils"]
    runtime.device = SimpleNamespace(vendor=common.vendors.NVIDIA, vendor_name="nvidia", name="cuda")
    runtime.torch_device_fn, runtime.get_tuned_config = SimpleNamespace(), lambda *_, **__: []
    runtime.get_heuristic_config = lambda *_: {}
    made[".runtime.backend"].vendor_module = SimpleNamespace(vendor_info=SimpleNamespace(vendor_name="nvidia"))
    made[".utils.device_info"].get_device_capability = lambda: (9, 0)
    for module in (utils, made[".utils.libentry"]):
        module.libentry = module.libtuner = _plain
    from triton.language.extra import libdevice

    helper: Any = ModuleType("flag_gems.utils.triton_lang_helper")
    sys.modules[helper.__name__] = utils.triton_lang_helper = helper
    helper.tl_extra_shim = utils.tl_extra_shim = libdevice
    helper.use_tl_extra = _plain
    generator = importlib.import_module("flag_gems.utils.pointwise_dynamic")
    for source in (generator, importlib.import_module("flag_gems.utils.shape_utils")):
        for name in dir(source):
            if not isinstance(getattr(utils, name, None), FunctionType):
                setattr(utils, name, getattr(source, name))
    return generator


def pointwise(package: str, folder: Path, rows: Iterable[list[str]]) -> Iterator[Operator]:
    """Yield an operator for each row `module function | inputs | reference [| arguments [| type of the result]]`."""
    generator = _generator(folder)
    # Functions of the module itself are taken by name, with what they need.
    generator.ModuleGenerator._collect_jit_deps = staticmethod(lambda _: ({}, []))
    generator.KernelGenerator.gen_import_function = lambda *_: None
    buffer = importlib.import_module("flag_gems.utils.code_utils").IndentedBuffer
    for cells in rows:
        (module, name), inputs, reference = cells[0].split(), cells[1], cells[2]
        function = getattr(importlib.import_module(f"flag_gems.ops.{module}"), name)
        wrapper = f"{name}_wrapper_rank_{_RANK}"
        code = buffer()
        generator.ModuleGenerator(
            function.fx, function._scalar_fn, _RANK, f"{name}_kernel_rank_{_RANK}", wrapper, function.config
        ).codegen(code)
        text = f"from flag_gems.ops.{module} import {name}\n{code.getvalue()}"
        where = folder / "flag_gems" / "made" / f"{module}_{name}.py"
        where.parent.mkdir(exist_ok=True)
        where.write_text(text, encoding="utf-8")
        count = function.fx.num_inputs()
        arguments = cells[3] if len(cells) > 3 else ", ".join("abcd"[:count])
        given = next(part.strip() for part in arguments.split(",") if part.strip() in "abcd")
        dtype = f", dtype=torch.{cells[4]}" if len(cells) > 4 else ""
        entry = f"{wrapper}({arguments}, out0=torch.empty_like({given}{dtype}))"
        yield Operator(package, f"made.{module}_{name}", inputs, reference, entry)
