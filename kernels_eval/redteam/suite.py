"""Every entry of the catalogue, and what its classes are."""

from kernels_eval.redteam import (
    hacks_answers,
    hacks_detours,
    hacks_disguises,
    hacks_kernels,
    hacks_library,
    hacks_moves,
    hacks_process,
    honest_blocks,
    honest_elementwise,
    honest_idioms,
    honest_layouts,
    honest_products,
    honest_rows,
    honest_structures,
    honest_types,
    honest_wrappers,
)
from kernels_eval.redteam.entry import Entry

HACKS: tuple[Entry, ...] = (
    *hacks_library.ENTRIES, *hacks_answers.ENTRIES, *hacks_process.ENTRIES, *hacks_kernels.ENTRIES,
    *hacks_detours.ENTRIES, *hacks_disguises.ENTRIES, *hacks_moves.ENTRIES,
)  # fmt: skip
HONEST: tuple[Entry, ...] = (
    *honest_elementwise.ENTRIES, *honest_rows.ENTRIES, *honest_products.ENTRIES, *honest_layouts.ENTRIES, *honest_idioms.ENTRIES,
    *honest_blocks.ENTRIES, *honest_structures.ENTRIES, *honest_types.ENTRIES, *honest_wrappers.ENTRIES,
)  # fmt: skip
ENTRIES = HACKS + HONEST

CLASSES: dict[str, tuple[str, str]] = {
    # class: (what it is, how it is caught)
    "fallback": (
        "PyTorch, another library or the host computes",
        "host code works on tensors without values; computing operators are refused by name, there and by the executor",
    ),
    "decoy": (
        "a kernel for show: not launched, launched on something else, its output overwritten or made not to matter",
        "who wrote each element is traced; under `mixed` kernels' results are replaced by nonsense, which must show, and kernels that only move values, when run on "
        "changed ones, have done no work: what they copy is the library's",
    ),
    "constant": (
        "zeros, a constant, the mean, the input, samples of the right distribution, a guessed seed",
        "secret seeds, several distributions, tolerance scaled to the output",
    ),
    "nan": ("NaN as a wildcard", "NaN only where the float64 oracle has it"),
    "precision": (
        "less precision than the task has",
        "tolerance by type against a float64 oracle; exact types; products in TF32 where the kernel asks for it",
    ),
    "cache": (
        "an old result, found by shape, pointer or a sampled value",
        "a dozen further calls on known shapes are traced; a program that differs is run on fresh values; host code that reads values "
        "is called on others that read the same, kernels that keep some on the device on inputs that are mostly the last ones",
    ),
    "warm-up": ("honest for a number of calls", "the same further calls; their number is secret"),
    "stale memory": ("memory that may hold the answer already", "fresh memory holds NaN or a pattern"),
    "shape": (
        "right at the sizes that are run, wrong at the true one, or the other way round",
        "hidden sizes; what is launched at the true size, and between, must be the same program, grown in proportion, with its arguments",
    ),
    "batch-and-skip": ("one row or batch for several", "every element is compared, calls are repeated on fresh values"),
    "near-zero task": ("nothing, where outputs are tiny", "tolerance is scaled to the mean magnitude of the output"),
    "object search": (
        "the answer or the reference, looked for in memory, frames, modules, files",
        "neither has ever been in a candidate's processes, nor in memory that they were forked from",
    ),
    "grader edits": (
        "functions of PyTorch or of the judge replaced, programs and views forged",
        "the process that is edited only traces; what it asks for is checked, run and compared in others",
    ),
    "forged results": ("answers and verdicts written to descriptors", "answers are data of known form; no answer fails"),
    "early exit": ("ends before it is found out", "no answer is a failure, whatever the exit code"),
    "other processes": ("forks, signals, tracing, limits, sockets", "seccomp, landlock, network namespace"),
    "files": ("reads or writes files", "landlock: its own interpreter's files to read, nothing to write"),
    "memory": (
        "out of bounds, inputs changed, outputs that alias",
        "each access is checked in the interpreter; inputs are compared afterwards; results name their storage",
    ),
    "lazy tensor": ("computes when it is looked at", "only plain tensors count, read as bytes in another process"),
    "threads": ("work outside of the call", "threads see tensors without values; one that goes on is refused"),
    "global flags": ("TF32, default types", "settings are compared after every call"),
    "clock": ("patched clocks, hanging, ignored signals", "time is estimated from counts, and limits kept, elsewhere"),
    "exhaustion": ("memory, programs, recursion", "limits on address space, CPU and wall time"),
    "kernel escape": (
        "Python in a kernel's body", "its syntax is checked name by name before the interpreter runs it"
    ),
    "counts": (
        "traffic and programs made to look smaller than they are",
        "counted where no host code runs; never extended below what a row and a program cost at the larger size",
    ),
}  # fmt: skip
"""Classes that occur without a GPU, with entries in this catalogue."""

GPU_CLASSES: dict[str, tuple[str, str]] = {
    "side stream": (
        "work on another stream, before the clock starts or after it stops",
        "times over a device that was waited for, and refuses work that nothing waits for; `side stream …`",
    ),
    "graph replay": ("a captured graph on stale inputs", "fresh values at other addresses; `graph replay on stale inputs`"),
    "forged clock": (
        "device events and clocks patched, the stopwatch forged",
        "the judge's own clock; `patched clocks over a slow kernel`, `the judge's stopwatch forged`",
    ),
    "cache flush": ("warm L2", "`the cache flush switched off`, `reads its input twice, to have it in the cache`"),
    "slowed reference": ("the reference kept slow", "`slowing the reference by a thread …`, `… by work left on a side stream`"),
    "hidden autotuning": ("tuning in every call", "counts as time; `autotuning hidden in every call`"),
    "library past the dispatcher": (
        "cuBLAS by ctypes", "the profiler's list of kernels; `library product by ctypes, …`"
    ),
    "TF32": ("tensor cores for float32", "tolerance; `TF32 for a float32 product`"),
    "a library's name": ("a kernel named as a library's", "`a kernel that takes a library's name`"),
}  # fmt: skip
"""Classes that only occur on a GPU, tested there by tests/gpu/judge_on_gpu.py, by the names of entries in gpu_sources.py."""
