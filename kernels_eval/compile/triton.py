"""Triton's compiler, in a one-shot process: compiles launched kernels to machine code for named targets.

Needs no GPU: Triton compiles for any target. The caller (`kernels_eval.compile.one_shot.Compiler`) sends one request
(kernel sources, launches, targets); this process answers `compiled` (resources of each kernel and target) or `failed`
(category, message), and ends. The candidate's module is not run here: kernels are compiled from the sources that the
interpreter ran, which kernels_eval.trace.kernel_syntax has checked. Registers, stack and shared memory come from the
machine code itself: from the ELF sections of a cubin, from the metadata of AMD code. Spills are bytes of local memory
a thread (NVIDIA) or spilled registers (AMD).
"""

import ast
import re
import socket
import struct
import types
from collections.abc import Sequence
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from kernels_eval.cost.launch import Constant, Launch
from kernels_eval.error_categories import ErrorCategory
from kernels_eval.interpreter.kernel_loading import KernelLibrary, dtype_named, tuple_of
from kernels_eval.interpreter.triton_patches.names import compiled_function, parameter_names
from kernels_eval.problem import EXAMPLE_KERNEL
from kernels_eval.sandbox.candidate_source import CandidateError, describe
from kernels_eval.sandbox.messages import ChannelClosedError, receive_frame, send_frame
from kernels_eval.trace.launch_signature import signature_type
from kernels_eval.trace.schema import KernelSource, ModuleName

_SIZED_RECORD, _FRAME_SIZE, _REGISTER_COUNT = 0x04, 0x11, 0x2F


def compile_main(channel: socket.socket, memory_descriptor: int) -> None:
    """Answer one request and end."""
    channel.settimeout(None)
    try:
        request, _ = receive_frame(channel)
        kernels = [KernelSource(**values) for values in request["kernels"]]
        resources = _compile(kernels, request["launches"], request["targets"])
        send_frame(channel, {"kind": "compiled", "resources": resources})
    except CandidateError as failed:
        send_frame(channel, failed.header)
    except ChannelClosedError:
        return


def warm_up_compiler() -> None:
    """Compile a small kernel for each vendor, in the zygote: a process's first compilation is four times slower."""
    types = {"x_ptr": "*fp32", "out_ptr": "*fp32", "M": "i32", "N": "i32", "ROWS": "constexpr", "BLOCK": "constexpr"}
    sizes = {"ROWS": Constant(value=4), "BLOCK": Constant(value=16)}
    launch = Launch(
        kernel="kernel",
        kernel_number=0,
        programs=1,
        signature=types,
        constants=sizes,
    )
    start = EXAMPLE_KERNEL.index("def kernel")
    source = EXAMPLE_KERNEL[start : EXAMPLE_KERNEL.index("class ModelNew")].rstrip() + "\n"
    kernel = KernelSource(
        number=0, name="kernel", source=source, line=1, globals={"tl": ModuleName(name="triton.language")}
    )
    _compile([kernel], [launch.model_dump(mode="json")], ["cuda:90", "hip:gfx942"])


def _compile(kernels: list[KernelSource], launches: list[dict[str, Any]], targets: list[str]) -> list[dict[str, Any]]:
    library = KernelLibrary(_for_the_compiler, for_interpreter=False)
    library.load(kernels)
    resources: list[dict[str, Any]] = []
    for launch in (Launch(**values) for values in launches):
        for target in targets:
            try:
                used = _compile_one(library, launch, target)
            except OSError:  # a full disk, a lost file: no kernel can make the compiler raise it
                raise
            except BaseException as error:
                message = compiler_message(error)
                raise CandidateError(
                    "compile_error", ErrorCategory.TRITON_COMPILE, f"{launch.kernel} for {target}: {message}"
                ) from error
            resources.append({"kernel": launch.kernel, "architecture": target, **used})
    return resources


def gpu_target(name: str) -> GPUTarget:
    """Return Triton's target for `cuda:90` or `hip:gfx942`."""
    backend, architecture = name.split(":")
    if backend == "cuda":
        return GPUTarget("cuda", int(architecture), 32)
    return GPUTarget("hip", architecture, 64)


def _for_the_compiler(function: types.FunctionType, kernel: KernelSource, tree: ast.FunctionDef) -> Any:
    return compiled_function(function, kernel.is_constexpr_function, kernel.is_noinline)


def _compile_one(library: KernelLibrary, launch: Launch, target: str) -> dict[str, Any]:
    function = library[launch.kernel_number]
    names = parameter_names(function)
    constants = {_place(names, path): _constant(library, value) for path, value in launch.constants.items()}
    attributes = {_place(names, path): [["tt.divisibility", 16]] for path in launch.divisible}
    signature = {name: signature_type(launch.signature.get(name, "constexpr")) for name in names}
    source = ASTSource(fn=function, signature=signature, constexprs=constants, attrs=attributes)
    compiled = triton.compile(source, target=gpu_target(target), options=dict(launch.options) or None)
    shared = int(getattr(compiled.metadata, "shared", 0))
    if target.startswith("cuda"):
        return {"shared_bytes": shared, **cubin_resources(compiled.asm["cubin"])}
    text = compiled.asm["amdgcn"]
    return {
        "shared_bytes": shared,
        "registers": _number(r"\.vgpr_count:\s+(\d+)", text),
        "spills": _number(r"\.vgpr_spill_count:\s+(\d+)", text),
    }


def _place(names: Sequence[str], path: str) -> tuple[int, ...]:
    """Return the place of an argument among a kernel's, and of an item of a tuple in it."""
    name, *items = path.split(".")
    return (names.index(name), *map(int, items))


def _constant(library: KernelLibrary, constant: Constant) -> Any:
    if constant.kind == "tuple":
        return tuple_of([_constant(library, item) for item in constant.items], constant.fields)
    if constant.kind == "dtype":
        return dtype_named(str(constant.value))
    return library[int(constant.value or 0)] if constant.kind == "kernel" else constant.value


def _number(pattern: str, text: str) -> int | None:
    found = re.search(pattern, text)
    return int(found.group(1)) if found else None


def cubin_resources(cubin: bytes) -> dict[str, int | None]:
    """Read registers and local memory a thread from a cubin: records of its ELF section `.nv.info`.

    A record: format and attribute (a byte each), a 16-bit size, then (symbol, value) as 32-bit numbers for the
    attributes read here, EIATTR_REGCOUNT and EIATTR_FRAME_SIZE. `cuobjdump --dump-resource-usage` prints the same
    figures.
    """
    section_offset = struct.unpack_from("<Q", cubin, 40)[0]
    entry_size, count, names_index = struct.unpack_from("<HHH", cubin, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, section_offset + index * entry_size) for index in range(count)]
    names = sections[names_index][4]
    found: dict[int, int] = {}
    for name_offset, _, _, _, offset, size, *_ in sections:
        start = names + name_offset
        if cubin[start : cubin.index(b"\0", start)] != b".nv.info":
            continue
        position, end = offset, offset + size
        while position + 4 <= end:
            form, attribute, length = struct.unpack_from("<BBH", cubin, position)
            position += 4
            if form == _SIZED_RECORD:
                if length >= 8:
                    value = struct.unpack_from("<II", cubin, position)[1]
                    found[attribute] = max(found.get(attribute, 0), value)
                position += length
    return {"registers": found.get(_REGISTER_COUNT), "spills": found.get(_FRAME_SIZE)}


def compiler_message(error: BaseException) -> str:
    """Return the compiler's message: the last cause, with the kernel's own line if it names one."""
    text = str(error).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    located = re.match(r"at (\d+):\d+:", text)
    if located is None:
        refused = re.search(r"^ptxas .*?error\s*: (.+)$", text, re.MULTILINE)  # behind a general first line
        return f"ptxas: {refused[1][:300]}" if refused else describe(error)
    caret = next((index for index, line in enumerate(lines) if set(line) == {"^"}), None)
    code = lines[caret - 1] if caret else ""
    said = " ".join(lines[caret + 1 :]) if caret is not None else lines[-1]
    return f"{type(error).__name__}: {said[:300]} (line {located.group(1)} of the kernel: {code})"
