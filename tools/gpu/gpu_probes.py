"""Probes of a GPU machine, each run in a separate process: `python gpu_probes.py NAME` prints one JSON object.

Also the parts of judge_on_gpu.py that compute: estimates by the interpreter, the peer's method of a fresh process for
each kernel.
"""

import ctypes
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]


def environment() -> dict[str, Any]:
    import torch
    import triton

    properties: Any = torch.cuda.get_device_properties(0)
    names = (
        "name",
        "major",
        "minor",
        "multi_processor_count",
        "L2_cache_size",
        "clock_rate",
        "memory_clock_rate",
        "memory_bus_width",
        "total_memory",
    )
    nvidia = subprocess.run(["nvidia-smi"], capture_output=True, text=True).stdout.splitlines()
    return {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "triton": triton.__version__,
        **{name: getattr(properties, name, "missing") for name in names},
        "sleep": hasattr(torch.cuda, "_sleep"),
        "nvidia-smi": nvidia[2] if len(nvidia) > 2 else nvidia,
        "nvcc": subprocess.run(["nvcc", "--version"], capture_output=True, text=True).stdout.splitlines()[-2:],
        "kernel": os.uname().release,
        "cores": os.cpu_count(),
        "gcc": subprocess.run(["gcc", "--version"], capture_output=True, text=True).stdout.splitlines()[:1],
    }


def zygote() -> dict[str, Any]:
    """Tell if imports and the warm-up leave CUDA alone, so that forks can use it."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    started = time.perf_counter()
    import torch

    from kernels_eval.gpu.candidate import warm_up

    found: dict[str, Any] = {
        "imports_s": time.perf_counter() - started,
        "clean after imports": warm_up.is_cuda_untouched(),
    }
    started = time.perf_counter()
    warm_up.warm_up_zygote()
    found |= {"warm_up_s": time.perf_counter() - started, "clean after warm-up": warm_up.is_cuda_untouched()}
    found["torch says initialised"] = torch.cuda.is_initialized()
    for number, profiler in enumerate(("1", "1", "0")):
        os.environ["KERNELS_EVAL_WARM_PROFILER"] = profiler
        found[f"fork {number}, profiler {profiler}"] = in_fork(lambda: timed(warm_up.warm_up_child))
    return found


def timed(call: Callable[[], Any]) -> dict[str, Any]:
    started = time.perf_counter()
    call()
    return {"seconds": time.perf_counter() - started}


def in_fork(call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run in a child; its answer, or its traceback."""
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        try:
            answer = call()
        except BaseException:  # noqa: BLE001 (told to the parent)
            answer = {"error": traceback.format_exc()[-1500:]}
        theirs.sendall(json.dumps(answer, default=str).encode())
        os._exit(0)
    theirs.close()
    ours.settimeout(60)
    parts: list[bytes] = []
    while part := ours.recv(1 << 16):
        parts.append(part)
    os.wait()
    return json.loads(b"".join(parts) or b"{}")


def gate() -> dict[str, Any]:
    """Overhead and spread of a gate, how many launches fit behind it, and times of a copy beside device events."""
    import torch

    from kernels_eval.gpu.device.cuda_driver import CudaDriver
    from kernels_eval.gpu.device.gate import Gate, GatePage, new_page
    from kernels_eval.gpu.timing.reference_timer import ReferenceTimer

    torch.zeros(1, device="cuda")
    calls = CudaDriver()
    page = GatePage(new_page())
    held = Gate(calls, page)
    timer = ReferenceTimer(calls, held)
    empty = sorted(1e6 * timer._timed(None, [], held)[0] for _ in range(50))
    found: dict[str, Any] = {"empty_us": [round(empty[at], 1) for at in (0, 25, 45, 49)]}
    x = torch.randn(512, 1024, device="cuda")
    for launches in (500, 900, 1000, 1020):
        held.close()
        started = time.perf_counter()
        for _ in range(launches):
            x.mul_(1.0)
        spent = time.perf_counter() - started
        page.open()
        calls.synchronize()
        found[f"queue of {launches}"] = {"enqueue_ms": round(1e3 * spent, 2), "gave_up": page.gave_up}
    sets = [[torch.randn(4096, 1024, device="cuda")] for _ in range(16)]
    for name, forward in (("relu 4096x1024", torch.relu), ("item", lambda value: value.sum().item())):
        by_gate = [1e6 * timer.call_s(forward, sets, 1, False) for _ in range(5)]
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)
        start.record()
        for inputs in sets:
            forward(*inputs)
        end.record()
        torch.cuda.synchronize()
        found[name] = {
            "gate_us": [round(value, 2) for value in by_gate],
            "events_us": 1e3 * start.elapsed_time(end) / 16,
        }
    return found


def mapped_memory() -> dict[str, Any]:
    """Time of a kernel on memory of another process, mapped by a handle, beside the same on its own memory."""
    ran = subprocess.run([sys.executable, __file__, "ipc_once", "-1"], capture_output=True, text=True, timeout=60)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": ran.stderr[-800:]}


def _speed(memory: Any) -> dict[str, float]:
    """Microseconds of copying 16 MB between parts of a tensor of bytes, cold."""
    import torch

    size = 16 << 20
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    times: list[float] = []
    for _ in range(5):
        torch.cuda._sleep(2_000_000)
        start.record()
        for at in range(0, memory.numel() - 2 * size, 2 * size):
            torch.neg(
                memory[at : at + size].view(torch.float32), out=memory[at + size : at + 2 * size].view(torch.float32)
            )
        end.record()
        torch.cuda.synchronize()
        times.append(1e3 * start.elapsed_time(end) / ((memory.numel() - 2 * size) // (2 * size)))
    return {"us": min(times), "spread": max(times) / min(times)}


def ipc() -> dict[str, Any]:
    """Tell whether a forked process can map the judge's memory; the same with an IPC namespace of its own."""
    found: dict[str, Any] = {}
    for name, flags in (("plain", 0), ("netns", 0x40000000), ("netns+ipcns", 0x48000000)):
        found[name] = _map_from_fork(flags)
    return found


def _map_from_fork(flags: int) -> dict[str, Any]:
    command = [sys.executable, __file__, "ipc_once", str(flags)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": ran.stderr[-800:]}


def ipc_once(flags: int) -> dict[str, Any]:
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        answer: dict[str, Any] = {}
        try:
            if flags > 0:
                answer["unshare"] = ctypes.CDLL(None, use_errno=True).unshare(flags)
            import torch

            from kernels_eval.gpu.device.cuda_driver import CudaDriver
            from kernels_eval.gpu.device.shared_memory import MappedMemory

            torch.zeros(1, device="cuda")
            mapping = json.loads(theirs.recv(4096))
            started = time.perf_counter()
            memory = MappedMemory(CudaDriver(), mapping, -1).tensor
            answer["open_ms"] = 1e3 * (time.perf_counter() - started)
            answer["read"] = memory[:4].tolist()
            if flags < 0:
                answer["mapped"] = _speed(memory)
                answer["own"] = _speed(torch.zeros_like(memory))
            memory[4:8] = 9
            torch.cuda.synchronize()
        except BaseException:  # noqa: BLE001 (told to the parent)
            answer["error"] = traceback.format_exc()[-800:]
        theirs.sendall(json.dumps(answer).encode())
        os._exit(0)
    theirs_fd = theirs
    import torch

    from kernels_eval.gpu.device.cuda_driver import CudaDriver
    from kernels_eval.gpu.device.shared_memory import IpcTransport

    torch.zeros(1, device="cuda")
    transport = IpcTransport(CudaDriver())
    transport.reserve(1 << 30)
    memory = transport.memory()
    memory.fill_(7)
    transport.push(64 << 20)
    ours.sendall(json.dumps(transport.mapping()).encode())
    theirs_fd.close()
    ours.settimeout(40)
    answer = json.loads(ours.recv(65536) or b"{}")
    transport.pull(64 << 20)
    answer["written back"] = memory[:8].tolist()
    return answer


def profiler() -> dict[str, Any]:
    import gpu_sources as sources
    import torch

    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
    from kernels_eval.gpu.candidate.profiling import KernelRecord, Profiler, attribution_of
    from kernels_eval.sandbox.candidate_source import load_source

    model = load_source(sources.ROW_KERNEL).ModelNew()
    x = torch.rand(4096, 1024, device="cuda")
    started = time.perf_counter()
    model(x)
    torch.cuda.synchronize()
    compile_s = time.perf_counter() - started
    started = time.perf_counter()

    def flush() -> None:
        x.fill_(0.5)

    watcher = Profiler(flush)
    watcher.warm_up()
    first_s = time.perf_counter() - started
    side = torch.cuda.Stream()

    def work() -> None:
        model(x)
        torch.softmax(x, 1)
        torch.mm(x, x.t())
        x.clone()
        x.t().contiguous()
        torch.empty_like(x).fill_(1.0)
        torch.cuda._sleep(1000)
        with torch.cuda.stream(side):
            model(x)
        torch.cuda.synchronize()

    started = time.perf_counter()
    records = watcher.records(work)
    second_s = time.perf_counter() - started
    attribution = attribution_of([KernelRecord(**record) for record in records], {"row_softmax"})
    return {
        "compile_s": compile_s,
        "first_s": first_s,
        "second_s": second_s,
        "records": [[record["name"][:90], record["duration_ns"], record["stream"]] for record in records],
        "own_ns": attribution.own_ns,
        "library": [name[:90] for name in attribution.library_names],
        "side streams": attribution.uses_side_streams,
    }


def _start_candidates() -> tuple[Any, Path]:
    """Fork a fork server of candidates as a worker does; returns it and the file that its processes' errors go to."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    os.environ["TMPDIR"] = tempfile.mkdtemp()
    os.environ["TRITON_CACHE_DIR"] = os.environ["TMPDIR"] + "/triton"
    from kernels_eval.gpu.candidate import limits, process, warm_up
    from kernels_eval.sandbox import fork_server as fork_server
    from kernels_eval.sandbox.messages import note_pair

    errors = Path(os.environ["TMPDIR"]) / "errors.txt"

    def telling(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> Any:
            try:
                return call(*args)
            except BaseException:
                with errors.open("a") as file:
                    file.write(traceback.format_exc())
                raise

        return wrapped

    ours, theirs = note_pair()
    if os.fork() == 0:
        ours.close()
        setup = fork_server.ChildSetup(
            telling(warm_up.warm_up_child), limits.confine_fork_server, telling(limits.confine_child)
        )
        fork_server.serve_fork_server(theirs, telling(process.candidate_main), may_fork=True, setup=setup)
        os._exit(0)
    theirs.close()
    return fork_server.ForkServer(ours), errors


def grader() -> dict[str, Any]:
    """The whole path without the judge's process: errors of the candidate's process are shown, and what timing saw."""
    import gpu_sources as sources

    candidates, errors = _start_candidates()
    from kernels_eval.config import JudgeConfig
    from kernels_eval.gpu.grader import Grader

    found: dict[str, Any] = {}
    try:
        started = time.perf_counter()
        graded = Grader(candidates)
        graded.probe()
        found["ready_s"] = time.perf_counter() - started
        found["facts"] = vars(graded.facts)
        found["sandbox"] = graded.sandbox
        for name, problem, kernel in (
            ("row", sources.ROW_PROBLEM, sources.ROW_KERNEL),
            ("row again", sources.ROW_PROBLEM, sources.ROW_KERNEL),
            ("linear", sources.LINEAR_PROBLEM, sources.LINEAR_KERNEL),
        ):
            started = time.perf_counter()
            verdict = graded.grade(problem, kernel, JudgeConfig(), {})
            measured = graded.last_measured
            found[name] = {
                "seconds": time.perf_counter() - started,
                "status": verdict.status,
                "message": verdict.error_message,
                "category": verdict.error_category,
                "speedup": verdict.speedup,
                "resources": [used.model_dump() for used in verdict.resources],
            }
            if measured is not None:
                found[name] |= {
                    **vars(measured),
                    "candidate": vars(measured.candidate),
                    "reference": vars(measured.reference),
                }
    except BaseException:  # noqa: BLE001 (told)
        found["error"] = traceback.format_exc()[-2500:]
    found["child errors"] = errors.read_text()[-3000:] if errors.exists() else ""
    return found


PROBES: dict[str, Callable[[], dict[str, Any]]] = {
    "environment": environment,
    "zygote": zygote,
    "gate": gate,
    "ipc": ipc,
    "mapped memory": mapped_memory,
    "profiler": profiler,
    "grader": grader,
}


def interpret(items: list[tuple[str, str]], processes: int) -> list[dict[str, Any]]:
    """Judge on the CPU; returns verdict fields, launches and the eager reference's launches of each item."""
    from kernels_eval.config import JudgeConfig
    from kernels_eval.pool.scratch import Scratch
    from kernels_eval.pool.zygote import Zygote
    from kernels_eval.sandbox.messages import receive_frame, send_frame

    scratch = Scratch()
    warm = Zygote("interpret", scratch.path)
    config = JudgeConfig(device="cpu", compile="never", timeout_s=30.0).model_dump(mode="json")

    def serve(share: list[int]) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        _, channel = warm.fork()
        channel.settimeout(120)
        receive_frame(channel)
        for index in share:
            problem, kernel = items[index]
            send_frame(channel, {"kind": "evaluate", "problem": problem, "kernel": kernel, "config": config})
            reply, _ = receive_frame(channel)
            found[index] = {**reply.get("verdict", {}), "launches": reply.get("launches", [])}
        channel.close()
        return found

    shares = [list(range(start, len(items), processes)) for start in range(min(processes, len(items)))]
    everything: dict[int, dict[str, Any]] = {}
    try:
        with ThreadPoolExecutor(len(shares)) as pool:
            for found in pool.map(serve, shares):
                everything |= found
    finally:
        warm.close()
        scratch.close()
    from kernels_eval.reference.reference import Reference

    eager: dict[str, list[dict[str, Any]]] = {}
    for index, (problem, _) in enumerate(items):
        if problem not in eager:
            eager[problem] = [launch.model_dump(mode="json") for launch in Reference(problem, 1).eager_launches]
        everything[index]["eager"] = eager[problem]
    return [everything[index] for index in range(len(items))]


_FRESH = """
import sys, types, linecache, torch, triton
from triton.testing import do_bench
problem, kernel = (open(path).read() for path in sys.argv[1:3])
def load(name, text):
    module = types.ModuleType(name); sys.modules[name] = module
    linecache.cache[name + ".py"] = (len(text), None, text.splitlines(True), name + ".py")
    exec(compile(text, name + ".py", "exec"), module.__dict__); return module
reference, candidate = load("problem", problem), load("candidate", kernel)
arguments = reference.get_init_inputs()
model, new = reference.Model(*arguments).cuda(), candidate.ModelNew(*arguments).cuda()
for seed in range(3):
    torch.manual_seed(seed)
    inputs = [value.cuda() for value in reference.get_inputs()]
    assert torch.allclose(model(*inputs), new(*inputs), atol=1e-4, rtol=1e-4)
print(do_bench(lambda: model(*inputs)), do_bench(lambda: new(*inputs)))
"""


def fresh_process(problem: str, kernel: str) -> float:
    """Seconds of the peer's method: a process that imports torch and triton, checks, times, exits."""
    folder = Path(tempfile.mkdtemp())
    for name, text in (("run", _FRESH), ("problem", problem), ("kernel", kernel)):
        (folder / f"{name}.py").write_text(text)
    surroundings = {**os.environ, "TRITON_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "run.py", "problem.py", "kernel.py"]
    started = time.perf_counter()
    ran = subprocess.run(command, cwd=folder, env=surroundings, capture_output=True, text=True, timeout=120)
    spent = time.perf_counter() - started
    if ran.returncode and "AssertionError" not in ran.stderr:
        print(ran.stderr[-500:], flush=True)
    return spent


if __name__ == "__main__":
    try:
        if sys.argv[1] == "ipc_once":
            answer = ipc_once(int(sys.argv[2]))
        elif sys.argv[1] == "interpret":
            answer = interpret(json.loads(sys.stdin.read()), processes=12)
        else:
            answer = PROBES[sys.argv[1]]()
    except BaseException:  # noqa: BLE001 (told)
        answer = {"error": traceback.format_exc()[-2500:]}
    print(json.dumps(answer, default=str), flush=True)
    os._exit(0)
