"""Error categories of verdicts: their names, which are stable, with a meaning, the usual cause and what to do.

`Verdict.error_category` holds one of these names as text. A back end of a user's own may add others, and a later
version too: treat an unknown one by its status. `docs/reference/verdicts.md` and `kernelmill judge explain` are made
from this module.
"""

from enum import StrEnum
from typing import NamedTuple

from kernels_eval.verdict import Status


class ErrorCategory(StrEnum):
    """Reason why a kernel is not correct, or why nothing can be said of it. `EXPLANATIONS` has a sentence on each."""

    SYNTAX_ERROR = "syntax_error"
    IMPORT_ERROR = "import_error"
    LOAD_ERROR = "load_error"
    MISSING_MODEL = "missing_model"
    SOURCE_TOO_LONG = "source_too_long"
    TRITON_COMPILE = "triton_compile"
    COMPILE_TIMEOUT = "compile_timeout"
    COMPILER_CRASHED = "compiler_crashed"
    NVCC_COMPILE = "nvcc_compile"
    NO_NVCC = "no_nvcc"
    NO_EXTENSION = "no_extension"
    EXTENSION_CHANGED = "extension_changed"
    TILELANG_COMPILE = "tilelang_compile"
    CUTE_COMPILE = "cute_compile"
    HIPCC_COMPILE = "hipcc_compile"
    NO_HIPCC = "no_hipcc"
    NO_KERNEL = "no_kernel"
    NO_CODE_BLOCK = "no_code_block"
    TRUNCATED_ANSWER = "truncated_answer"
    UNFINISHED_REASONING = "unfinished_reasoning"

    NOT_RUN_WITHOUT_GPU = "not_run_without_gpu"
    CONSTRUCTOR_ERROR = "constructor_error"
    EXCEPTION = "exception"
    OUT_OF_BOUNDS = "out_of_bounds"
    EMPTY_GRID = "empty_grid"
    KERNEL_ASSERTION = "kernel_assertion"
    OUT_OF_MEMORY = "out_of_memory"
    CRASHED = "crashed"
    NO_ANSWER = "no_answer"
    DEVICE_FAULT = "device_fault"
    DISK_QUOTA = "disk_quota"
    MACHINE_FAULT = "machine_fault"
    BEYOND_LIMITS = "beyond_limits"
    SHARED_MEMORY_LIMIT = "shared_memory_limit"
    THREAD_LIMIT = "thread_limit"
    GRID_LIMIT = "grid_limit"
    OFFSET_OVERFLOW = "offset_overflow"

    TIMEOUT = "timeout"

    WRONG_VALUES = "wrong_values"
    MISSING_PARAMETER = "missing_parameter"
    DATA_RACE = "data_race"
    WRONG_SHAPE = "wrong_shape"
    WRONG_DTYPE = "wrong_dtype"
    WRONG_TYPE = "wrong_type"
    WRONG_OUTPUT_COUNT = "wrong_output_count"

    LIBRARY_COMPUTE = "library_compute"
    NO_KERNEL_LAUNCHED = "no_kernel_launched"
    OUTPUT_NOT_FROM_KERNEL = "output_not_from_kernel"
    DECOY_KERNEL = "decoy_kernel"
    CHANGED_INPUT = "changed_input"
    ALIASED_OUTPUT = "aliased_output"
    EXPANDED_OUTPUT = "expanded_output"
    CHANGED_GLOBAL_STATE = "changed_global_state"
    BACKGROUND_THREAD = "background_thread"
    UNJOINED_STREAM = "unjoined_stream"
    MALFORMED_ANSWER = "malformed_answer"
    OTHER_SOURCE = "other_source"
    REACHES_INTO_JUDGE = "reaches_into_judge"
    BELOW_ROOFLINE = "below_roofline"
    UNLIKE_PROFILE = "unlike_profile"
    DISGUISED_KERNEL = "disguised_kernel"
    BUSY_DEVICE = "busy_device"
    CLOCK_DISAGREEMENT = "clock_disagreement"

    JUDGE_FAULT = "judge_fault"
    JUDGE_BUG = "judge_bug"
    JUDGE_CLOSED = "judge_closed"
    JUDGE_SILENT = "judge_silent"
    ENGINE_FAULT = "engine_fault"
    PROBE_FAILED = "probe_failed"
    REFERENCE_FAILED = "reference_failed"
    SLOWED_REFERENCE = "slowed_reference"


class Explanation(NamedTuple):
    """Explanation of a category."""

    status: Status
    """Status of the verdicts that have it, nearly always."""
    meaning: str
    """One sentence."""
    cause: str = ""
    """The usual cause; empty where the meaning says it."""
    remedy: str = ""
    """Advice for whoever writes the kernel or runs the judge; empty where there is none."""


# fmt: off
EXPLANATIONS: dict[ErrorCategory, Explanation] = {
    ErrorCategory.SYNTAX_ERROR: Explanation(Status.COMPILE_ERROR, "The source is not Python.",
        "The answer was cut off, or prose stands in the code block.", "Mend the line that the message names."),
    ErrorCategory.IMPORT_ERROR: Explanation(Status.COMPILE_ERROR,
        "The source imports a module or name that is not there.",
        "A library that the judge does not provide, or a name of another version of it.",
        "Import only torch, triton and the standard library, or the library of the back end."),
    ErrorCategory.LOAD_ERROR: Explanation(Status.COMPILE_ERROR,
        "The source raised an exception while it was loaded.",
        "Code at the top level of the module runs a kernel or uses a name before it is defined.",
        "Keep definitions at the top level; compute in `forward`."),
    ErrorCategory.MISSING_MODEL: Explanation(Status.COMPILE_ERROR, "The source defines no class `ModelNew`.",
        "The class has another name, or the answer holds the kernel alone.",
        "Define `class ModelNew(nn.Module)` with the signature of the problem's `Model`."),
    ErrorCategory.SOURCE_TOO_LONG: Explanation(Status.COMPILE_ERROR,
        "The source is longer than the server takes: 256 KiB.", "Generated code or data inside the source.",
        "Compute tables in the kernel instead of writing them out."),
    ErrorCategory.TRITON_COMPILE: Explanation(Status.COMPILE_ERROR,
        "Triton refused a kernel, or the kernel says what kernels cannot say.",
        "Python or torch inside a `@triton.jit` function, blocks whose shapes differ, a range that is no power of two.",
        "Mend the line that the message names; `kernelmill judge inspect` says more."),
    ErrorCategory.COMPILE_TIMEOUT: Explanation(Status.COMPILE_ERROR,
        "The compiler took longer than `judge.compile_timeout_s`.",
        "Large blocks or loops unrolled by `tl.static_range`.", "Use smaller blocks, or fewer unrolled loops."),
    ErrorCategory.COMPILER_CRASHED: Explanation(Status.COMPILE_ERROR, "The compiler died.",
        "A kernel that the compiler cannot handle, or too little memory for it.",
        "Simplify the kernel; raise `judge.memory_mb` if many kernels end so."),
    ErrorCategory.NVCC_COMPILE: Explanation(Status.COMPILE_ERROR, "nvcc refused the CUDA C++ source.",
        "An undeclared name or a wrong type; the message has the lines.", "Mend the lines that the message names."),
    ErrorCategory.NO_NVCC: Explanation(Status.COMPILE_ERROR, "nvcc is not installed on the judge's machine.", "",
        "Install the CUDA toolkit, or judge another language (`judge.backend`)."),
    ErrorCategory.NO_EXTENSION: Explanation(Status.COMPILE_ERROR, "The source builds no extension.",
        "A CUDA source is there, and `load_inline` is not called.", "Call `load_inline` at the top level."),
    ErrorCategory.EXTENSION_CHANGED: Explanation(Status.COMPILE_ERROR,
        "The source asks for another extension than the one that was built.",
        "Sources that depend on chance, time or the process.", "Build the same sources at each import."),
    ErrorCategory.TILELANG_COMPILE: Explanation(Status.COMPILE_ERROR,
        "TileLang refused a kernel; the message is the compiler's."),
    ErrorCategory.CUTE_COMPILE: Explanation(Status.COMPILE_ERROR,
        "CuTe refused a kernel; the message is the compiler's."),
    ErrorCategory.HIPCC_COMPILE: Explanation(Status.COMPILE_ERROR,
        "hipcc refused the source; the message is the compiler's."),
    ErrorCategory.NO_HIPCC: Explanation(Status.COMPILE_ERROR, "hipcc is not installed on the judge's machine.", "",
        "Install ROCm's compiler, or judge another language (`judge.backend`)."),
    ErrorCategory.NO_KERNEL: Explanation(Status.COMPILE_ERROR,
        "`forward` launches no kernel of the language, or an extension defines none.",
        "The kernel is defined and PyTorch is called.", "Launch the kernel in `forward`."),
    ErrorCategory.NO_CODE_BLOCK: Explanation(Status.COMPILE_ERROR,
        "The model's answer holds no complete Python code block.",
        "The model does not know the form of an answer yet.", "Train on answers in this form first (SFT)."),
    ErrorCategory.TRUNCATED_ANSWER: Explanation(Status.COMPILE_ERROR,
        "The answer reached the length limit before its code block was closed.",
        "Long reasoning, or a model that repeats itself.", "Raise `rollout.sampling.max_new_tokens`."),
    ErrorCategory.UNFINISHED_REASONING: Explanation(Status.COMPILE_ERROR,
        "The reasoning did not come to an end: there is no answer.",
        "The length limit is short for a model that reasons.", "Raise `rollout.sampling.max_new_tokens`."),
    ErrorCategory.NOT_RUN_WITHOUT_GPU: Explanation(Status.RUNTIME_ERROR,
        "The kernel compiled, and this machine has no GPU to run it; `compiled` is false if no kernel was reached.",
        "A language that only a GPU runs.", "Judge it on a machine with a GPU."),
    ErrorCategory.CONSTRUCTOR_ERROR: Explanation(Status.RUNTIME_ERROR, "`ModelNew(...)` raised an exception.",
        "Other arguments than those of `Model`.", "Take the arguments of `get_init_inputs()`."),
    ErrorCategory.EXCEPTION: Explanation(Status.RUNTIME_ERROR, "`forward` raised an exception.",
        "A wrong shape, a missing argument of a launch, an assertion of host code.",
        "Mend the line of the source that the message names."),
    ErrorCategory.OUT_OF_BOUNDS: Explanation(Status.RUNTIME_ERROR, "A kernel touched memory outside its tensors.",
        "A missing or wrong mask where the size is no multiple of the block.",
        "Mask the load or store with the tensor's true size."),
    ErrorCategory.EMPTY_GRID: Explanation(Status.RUNTIME_ERROR,
        "A kernel was launched over a grid without programs.", "A grid rounded down: `n // BLOCK`.",
        "Round up with `triton.cdiv`."),
    ErrorCategory.KERNEL_ASSERTION: Explanation(Status.RUNTIME_ERROR, "`tl.device_assert` failed.", "",
        "The message has the assertion and its line."),
    ErrorCategory.OUT_OF_MEMORY: Explanation(Status.RUNTIME_ERROR,
        "The candidate needed more than `judge.memory_mb`, or on a GPU more than a worker's share.",
        "A buffer that grows with the product of two sizes.",
        "Reuse buffers, and allocate no more than the outputs."),
    ErrorCategory.CRASHED: Explanation(Status.RUNTIME_ERROR, "A signal ended the candidate's process.",
        "Memory corrupted by code outside the interpreter.", "Remove ctypes and pointers made by hand."),
    ErrorCategory.NO_ANSWER: Explanation(Status.RUNTIME_ERROR, "The candidate's process ended without an answer.",
        "The source calls `exit` or ends its process in another way.", "Return from `forward`."),
    ErrorCategory.DEVICE_FAULT: Explanation(Status.RUNTIME_ERROR, "The GPU stopped a kernel.",
        "A launch that the device cannot make, or a trap in the kernel.", "The message has CUDA's error."),
    ErrorCategory.DISK_QUOTA: Explanation(Status.RUNTIME_ERROR,
        "The candidate's files take more than 1 GiB (on a GPU).", "A compiler's cache that grows with each call.",
        "Compile once."),
    ErrorCategory.MACHINE_FAULT: Explanation(Status.RUNTIME_ERROR,
        "The machine (on a GPU) or the judge's code failed on this kernel twice, and not on a probe right after.",
        "A kernel that hangs the device, breaks its context, or looks for gaps in the judge.",
        "Look for endless loops and wild addresses; report an honest kernel."),
    ErrorCategory.BEYOND_LIMITS: Explanation(Status.RUNTIME_ERROR,
        "More launches, more arguments or longer names than the judge describes; the message says which.",
        "A launch for each row, or generated code.", "Launch fewer kernels with shorter names."),
    ErrorCategory.SHARED_MEMORY_LIMIT: Explanation(Status.RUNTIME_ERROR,
        "A program needs more shared memory than a device of a target has (docs/estimates.md).",
        "Large tiles times many stages.", "Use smaller tiles, or fewer stages (`num_stages`)."),
    ErrorCategory.THREAD_LIMIT: Explanation(Status.RUNTIME_ERROR,
        "A program has more threads than a device of a target runs.", "", "Use fewer warps (`num_warps`)."),
    ErrorCategory.GRID_LIMIT: Explanation(Status.RUNTIME_ERROR,
        "A grid has more programs in y or z than a device takes.",
        "The largest dimension of the problem is not the first one of the grid.", "Put it into x."),
    ErrorCategory.OFFSET_OVERFLOW: Explanation(Status.RUNTIME_ERROR,
        "An offset of 32 bits overflows at the problem's own size.", "`program_id` times a stride, in int32.",
        "Compute the offset in int64: `tl.program_id(0).to(tl.int64)`."),
    ErrorCategory.TIMEOUT: Explanation(Status.TIMEOUT,
        "The kernel ran longer than `judge.timeout_s`; a slow core gets up to four times as much.",
        "An endless loop, programs that wait for each other, or far more work than needed.",
        "Look for loops that do not end; raise `judge.timeout_s` if honest kernels end so."),
    ErrorCategory.WRONG_VALUES: Explanation(Status.INCORRECT,
        "The kernel runs and its values are wrong; the message has the first wrong element and their share.",
        "A wrong index or mask, a reduction over part of a row, or less precision than the reference's.",
        "Compare that element by hand."),
    ErrorCategory.MISSING_PARAMETER: Explanation(Status.INCORRECT,
        "A parameter or buffer that the result depends on has no counterpart in `ModelNew`.",
        "A weight was renamed or left out.", "Keep the names and shapes of the reference's parameters."),
    ErrorCategory.DATA_RACE: Explanation(Status.INCORRECT,
        "Programs or lanes access one address without an order between them.",
        "Several programs add to one element by load and store.",
        "Use atomics, or one program for each output, or a second launch."),
    ErrorCategory.WRONG_SHAPE: Explanation(Status.INCORRECT, "The kernel returns another shape than the reference.",
        "", "Compare with the shape in the message."),
    ErrorCategory.WRONG_DTYPE: Explanation(Status.INCORRECT,
        "The kernel returns another data type than the reference.",
        "An output allocated in a type of its own, or a store that converts.",
        "Allocate with `torch.empty_like`, or the type in the message."),
    ErrorCategory.WRONG_TYPE: Explanation(Status.INCORRECT,
        "The kernel returns something else than the reference, or no tensor on the device.",
        "A tuple for a tensor, or a tensor of a subclass.", "Return plain tensors in the reference's collections."),
    ErrorCategory.WRONG_OUTPUT_COUNT: Explanation(Status.INCORRECT,
        "The kernel returns more or fewer outputs than the reference."),
    ErrorCategory.LIBRARY_COMPUTE: Explanation(Status.REJECTED,
        "PyTorch or the host computes what the kernel is to compute.",
        "A call of torch in `forward` that does more than allocate, reshape or copy.",
        "Allocate, reshape and launch on the host; compute in kernels. Or set `judge.policy: mixed`."),
    ErrorCategory.NO_KERNEL_LAUNCHED: Explanation(Status.REJECTED, "`forward` launched no kernel of the source.",
        "An earlier result is returned, or PyTorch did the work.", "Launch a kernel in each call."),
    ErrorCategory.OUTPUT_NOT_FROM_KERNEL: Explanation(Status.REJECTED,
        "Kernels of the source stored too few of the output's elements.",
        "The kernel's result is not what `forward` returns.", "Return the tensor that the kernel writes."),
    ErrorCategory.DECOY_KERNEL: Explanation(Status.REJECTED,
        "The output does not depend on what the kernels compute.",
        "A kernel is launched beside a call of PyTorch that gives the result.",
        "Let the kernels compute the result."),
    ErrorCategory.CHANGED_INPUT: Explanation(Status.REJECTED,
        "The kernel changed an input that the reference leaves alone.", "A result written into an input's memory.",
        "Allocate the output."),
    ErrorCategory.ALIASED_OUTPUT: Explanation(Status.REJECTED,
        "An output lies in the memory of an input, a weight or another output.",
        "`forward` returns an input or a view of it.", "Allocate the output."),
    ErrorCategory.EXPANDED_OUTPUT: Explanation(Status.REJECTED,
        "An output shows elements of its memory more than once.", "`expand` or a stride of 0.",
        "Write all elements."),
    ErrorCategory.CHANGED_GLOBAL_STATE: Explanation(Status.REJECTED,
        "The candidate changed a setting of PyTorch or Python.", "A switch of precision or of the default dtype.",
        "Leave settings alone."),
    ErrorCategory.BACKGROUND_THREAD: Explanation(Status.REJECTED, "A thread goes on after the call has returned.",
        "", "Join threads, or use none."),
    ErrorCategory.UNJOINED_STREAM: Explanation(Status.REJECTED,
        "Work on another stream goes on that nothing waits for (on a GPU).", "A side stream without `wait_stream`.",
        "Let the current stream wait for it."),
    ErrorCategory.MALFORMED_ANSWER: Explanation(Status.REJECTED,
        "The candidate's process said something that our side of it never says.",
        "Code that writes to the judge's channel or patches its modules.", "Compute in kernels."),
    ErrorCategory.OTHER_SOURCE: Explanation(Status.REJECTED,
        "A kernel that was launched is not the one in the submitted file.",
        "Kernels made by `exec`, or a global name that means something else at the launch.",
        "Define kernels at the top level, and set globals once."),
    ErrorCategory.REACHES_INTO_JUDGE: Explanation(Status.REJECTED,
        "The file reaches past its own program; the message has the name and the line.",
        "The judge's objects, frames, closures, memory by its address (`ctypes`), a replaced function of Python's "
        "library, names made at run time.",
        "Use PyTorch and Triton alone, and members by their names."),
    ErrorCategory.BELOW_ROOFLINE: Explanation(Status.REJECTED,
        "The measured time is less than the device needs at best (on a GPU).",
        "Work left out or done elsewhere, so that it is not timed.", "Do all of the work in each call."),
    ErrorCategory.UNLIKE_PROFILE: Explanation(Status.REJECTED,
        "Timed calls launch other kernels, or take less time, than profiled ones.",
        "Code that goes by the number of calls or looks for the profiler.", "Do the same work in each call."),
    ErrorCategory.DISGUISED_KERNEL: Explanation(Status.REJECTED, "A kernel has a name like a library's (on a GPU).",
        "", "Give the kernel a name of its own."),
    ErrorCategory.BUSY_DEVICE: Explanation(Status.REJECTED,
        "The reference was slower twice beside this kernel, and not without it.",
        "Work that keeps the device busy while the reference is timed.", "Leave nothing running after a call."),
    ErrorCategory.CLOCK_DISAGREEMENT: Explanation(Status.REJECTED,
        "Two clocks disagreed twice on the time of this kernel's calls.",
        "Host code that delays launches, or a machine too busy to time.", "Launch without waiting on the host."),
    ErrorCategory.JUDGE_FAULT: Explanation(Status.INFRASTRUCTURE_ERROR, "A worker or the machine failed.",
        "A worker died, memory ran out, or a kernel waited too long for a core.",
        "Judge it again; the judge's log names the cause."),
    ErrorCategory.JUDGE_BUG: Explanation(Status.INFRASTRUCTURE_ERROR, "The judge raised an exception of its own.",
        "An error in the judge.", "Report the message and the kernel."),
    ErrorCategory.JUDGE_CLOSED: Explanation(Status.INFRASTRUCTURE_ERROR,
        "The judge was closed before it judged this kernel.", "The run or the server ended.", "Start it again."),
    ErrorCategory.JUDGE_SILENT: Explanation(Status.INFRASTRUCTURE_ERROR,
        "No verdict came within `rollout.judge_patience_s`.",
        "More kernels wait than the judge's workers can handle.", "Raise `judge.workers` or the patience."),
    ErrorCategory.ENGINE_FAULT: Explanation(Status.INFRASTRUCTURE_ERROR,
        "The engine generated no answer for this turn.", "A server of the engine failed.",
        "Look at the engine's log."),
    ErrorCategory.PROBE_FAILED: Explanation(Status.INFRASTRUCTURE_ERROR,
        "A kernel that is known to be right failed on the worker.", "A broken device, driver or installation.",
        "Run `kernelmill verify`."),
    ErrorCategory.REFERENCE_FAILED: Explanation(Status.INFRASTRUCTURE_ERROR,
        "The problem itself fails or does not fit this machine.",
        "The reference raises, returns no finite values, ends its process, loops, or needs more memory than there is.",
        "Mend the problem."),
    ErrorCategory.SLOWED_REFERENCE: Explanation(Status.INFRASTRUCTURE_ERROR,
        "The reference was slower twice than before, and once more when the kernel had gone (on a GPU).",
        "Another program uses the GPU.", "Give the judge a GPU of its own."),
}
# fmt: on


def category_of(name: str) -> ErrorCategory | None:
    """Return the category of a name; None for one that is not ours."""
    return ErrorCategory(name) if name in list(ErrorCategory) else None
