"""Reading of PyTorch's pickles without executing what is in them.

Checkpoints of Megatron and DeepSpeed are pickles that hold arguments, enums and classes of their trainers beside the
tensors. Names outside a fixed list become inert placeholders: nothing of the checkpoint's choice is imported or called.
"""

import io
import pickle
from pathlib import Path
from typing import Any, BinaryIO

import torch

from kernels_eval.errors import InputError, first_line

_BUILTINS = frozenset({"set", "frozenset", "slice", "complex", "bytearray", "int", "float", "bool", "str"})
_ALLOWED: dict[str, frozenset[str]] = {
    "argparse": frozenset({"Namespace"}),
    "builtins": _BUILTINS,
    "__builtin__": _BUILTINS,  # the same in pickles of protocol 2, which torch.save writes
    "collections": frozenset({"OrderedDict", "defaultdict"}),
    "torch": frozenset({"Size", "device", "strided", "Tensor"}),
    "torch.serialization": frozenset({"_get_layout"}),
    "torch._utils": frozenset(
        {"_rebuild_tensor", "_rebuild_tensor_v2", "_rebuild_parameter", "_rebuild_parameter_with_state"}
    ),
    "torch._tensor": frozenset({"_rebuild_from_type_v2"}),  # tensors with attributes, as DeepSpeed's
    "torch.nn.parameter": frozenset({"Parameter"}),
    "torch.distributed.checkpoint.metadata": frozenset(
        {
            "BytesStorageMetadata",
            "ChunkStorageMetadata",
            "Metadata",
            "MetadataIndex",
            "StorageMeta",
            "TensorProperties",
            "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        }
    ),
    "torch.distributed.checkpoint.filesystem": frozenset({"_StorageInfo"}),
}


class Placeholder:
    """Stands for an object of a class that is not imported."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __setstate__(self, _: Any) -> None:
        pass

    def append(self, _: Any) -> None:
        """Accept an item of a list's subclass."""

    def extend(self, _: Any) -> None:
        """Accept items of a list's subclass."""

    def __setitem__(self, _: Any, __: Any) -> None:
        pass


class Unpickler(pickle.Unpickler):
    """Unpickler of tensors, plain values and the index of torch.distributed.checkpoint."""

    def find_class(self, module: str, name: str, /) -> Any:
        """Return the object of an allowed name, a data type of torch, or `Placeholder`."""
        if name in _ALLOWED.get(module, ()) or (
            module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)
        ):
            return super().find_class(module, name)
        return Placeholder


def load_index(file: Path) -> Any:
    """Return what a plain pickle (`.metadata` of torch.distributed.checkpoint) holds; raises InputError."""
    try:
        with file.open("rb") as stream:
            return Unpickler(stream).load()
    except (pickle.UnpicklingError, OSError, EOFError, AttributeError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{file}: cannot be read as the index of a checkpoint: {first_line(error)}") from error


def load_file(file: Path) -> Any:
    """Return what a file of `torch.save` holds, its tensors mapped and read when they are used; raises InputError."""
    if not file.is_file():
        raise InputError(f"{file}: no such file in the checkpoint")
    return _load(file, file, mmap=True)


def load_tensor(stream: BinaryIO | io.RawIOBase, file: Path) -> torch.Tensor:
    """Return the tensor that a stream of `torch.save` holds; raises InputError, which names `file`."""
    found = _load(stream, file, mmap=False)
    if not isinstance(found, torch.Tensor):
        raise InputError(f"{file}: expected a tensor, found {type(found).__name__}")
    return found


class _Pickles:
    """Stands for the module `pickle` in `torch.load`."""

    Unpickler = Unpickler
    UnpicklingError = pickle.UnpicklingError
    load = staticmethod(lambda stream, **options: Unpickler(stream, **options).load())
    __name__ = "extras.convert.unpickling"


def _load(source: Any, file: Path, *, mmap: bool) -> Any:
    try:
        return torch.load(source, map_location="cpu", weights_only=False, pickle_module=_Pickles(), mmap=mmap)
    except (pickle.UnpicklingError, RuntimeError, OSError, EOFError, AttributeError, TypeError, ValueError) as error:
        raise InputError(f"{file}: cannot be read as a file of torch.save: {first_line(error)}") from error
