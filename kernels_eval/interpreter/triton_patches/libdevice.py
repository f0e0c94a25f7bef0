"""Interpreter process: the module `libdevice` for interpreted kernels; Triton's interpreter has none.

A call in a kernel goes through Triton's own declaration (triton.language.extra.cuda.libdevice), which converts and
checks the arguments as for the compiler. Only the elementwise function behind it is ours
(kernels_eval.interpreter.device_functions).
"""

from typing import Any

import numpy as np
import triton.language as tl
from triton.language.extra.cuda import libdevice as declarations

from kernels_eval.interpreter.device_functions import FUNCTIONS, Function
from kernels_eval.interpreter.triton_patches.names import upstream


class InterpretedLibdevice:
    """Stand-in for the module `libdevice` in an interpreted kernel: one function for each name of `FUNCTIONS`."""


def install() -> None:
    """Replace libdevice for kernels that use the whole path (`tl.extra.cuda.libdevice.tanh`).

    Call it in the interpreter process only.
    """
    upstream.InterpreterBuilder.create_extern_elementwise = _elementwise
    extra: Any = tl.extra
    for owner in (extra, extra.cuda, extra.hip):
        owner.libdevice = InterpretedLibdevice


def _declared(name: str) -> Function:
    declaration = getattr(declarations, name)

    def call(*arguments: Any, **named: Any) -> Any:
        _current.append(name)
        try:
            return declaration(*arguments, **named, _semantic=upstream.interpreter_semantic)
        except KeyError as error:
            types = ", ".join(str(value.dtype) if isinstance(value, tl.tensor) else repr(value) for value in arguments)
            raise TypeError(f"libdevice.{name}: there is no variant for {types}") from error
        finally:
            _current.pop()

    return call


def _elementwise(self: Any, library: str, path: str, symbol: str, handles: Any, result: Any, is_pure: bool) -> Any:
    arrays = [handle.data for handle in handles]
    wanted = upstream._get_np_dtype(result)
    with np.errstate(all="ignore"):
        computed = np.asarray(FUNCTIONS[_current[-1]](*arrays))
    is_bits = computed.dtype.kind in "iu" and wanted.kind in "iu" and computed.dtype.itemsize == wanted.itemsize
    return upstream.TensorHandle(computed.view(wanted) if is_bits else computed.astype(wanted), result.scalar)


_current: list[str] = []
"""Name of the function that is being called."""


for _name in FUNCTIONS:
    if hasattr(declarations, _name):
        setattr(InterpretedLibdevice, _name, staticmethod(_declared(_name)))
