"""Measure the kernels that calibrate the estimate, on one NVIDIA GPU, in less than four minutes.

    python3 tools/gpu/estimate_calibration.py [--budget SECONDS] [--out FILE]
    python3 tools/gpu/estimate_calibration.py --rehearse    # without a GPU: loads every case and calls its reference

Needs torch, triton and pydantic. Kernels are compiled by a pool of processes first, then measured by one. Time of a
kernel and of its reference: device events around one call, with a cold L2 cache, while the device waits until the host
has enqueued the call; the median of the repeats. `do_bench_ms` is `triton.testing.do_bench`, which includes what the
host is too slow for. Writes `$OUT/estimate_measurements.json` after every 25 cases; `tools/estimate_fit.py` reads it.
"""

import argparse
import hashlib
import importlib.util
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
import types
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from estimate_cases import Case, all_cases  # noqa: E402  # pyright: ignore[reportMissingImports]

Call = Callable[[], Any]
STARTED = time.monotonic()
_SOURCES = Path(tempfile.gettempdir()) / f"estimate-calibration-{os.getuid()}"
_FLUSH_BYTES = 256 << 20
_REPEATS, _REPEAT_S = (5, 40), 0.02


def say(text: str) -> None:
    print(f"[{time.monotonic() - STARTED:6.1f}] {text}", flush=True)


def load(name: str, source: str) -> types.ModuleType:
    """Load a module from a file, since Triton reads the source of kernels."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:24]
    path = _SOURCES / f"{name}_{digest}.py"
    if not path.exists():
        _SOURCES.mkdir(exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}")
        partial.write_text(source)
        partial.replace(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def build(case: Case, device: str = "cuda") -> tuple[Call, Call]:
    """Return calls of the reference and of the candidate, with the same weights and inputs, made on the device.

    What the reference makes in its call is made there too, as on the judge's GPU.
    """
    import torch

    problem, kernel = load("problem", case.problem), load("kernel", case.kernel)
    with torch.device(device):
        arguments = problem.get_init_inputs()
        model = _seeded(lambda: problem.Model(*arguments).to(device))
        candidate = _seeded(lambda: kernel.ModelNew(*arguments).to(device))
        given = problem.get_inputs()
    candidate.load_state_dict(model.state_dict(), strict=False)
    inputs = [value.to(device) if isinstance(value, torch.Tensor) else value for value in given]

    def reference() -> Any:
        with torch.device(device):
            return model(*inputs)

    return reference, lambda: candidate(*inputs)


def _seeded(make: Call) -> Any:
    """Return what is made with one seed: parameters of other names are drawn alike."""
    import torch

    torch.manual_seed(0)
    return make()


def rehearse(case: Case) -> str | None:
    """Load a case and call its reference without a device; returns an error.

    One that asks for the device, or reads a value, cannot be called without it.
    """
    import torch

    try:
        with torch.no_grad():
            build(case, "meta")[0]()
    except Exception as error:  # noqa: BLE001 (one case must not end the run)
        return f"{type(error).__name__}: {error}"
    return None


def compile_one(case: Case) -> tuple[str, str | None]:
    """Run a kernel once, so that Triton's cache holds it; returns the name and an error."""
    import torch

    try:
        _, candidate = build(case)
        with torch.no_grad():
            candidate()
            torch.cuda.synchronize()
        del candidate
        torch.cuda.empty_cache()
    except Exception as error:  # noqa: BLE001 (one case must not end the run)
        return case.name, f"{type(error).__name__}: {str(error)[:300]}"
    return case.name, None


class Stopwatch:
    """Times calls on the device."""

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch
        self._flush = torch.empty(_FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def ms(self, call: Any) -> list[float]:
        """Return the milliseconds of each repeat."""
        torch = self._torch
        for _ in range(2):
            call()
        torch.cuda.synchronize()
        host = time.perf_counter()
        call()
        host = time.perf_counter() - host
        torch.cuda.synchronize()
        whole = time.perf_counter()
        call()
        torch.cuda.synchronize()
        whole = time.perf_counter() - whole
        repeats = int(min(max(_REPEAT_S / max(whole, 1e-5), _REPEATS[0]), _REPEATS[1]))
        cycles = int(2e9 * min(1.5 * host + 20e-6, 0.05))
        events: list[tuple[Any, Any]] = []
        for _ in range(repeats):
            self._flush.zero_()
            torch.cuda._sleep(cycles)
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            events.append((start, end))
        torch.cuda.synchronize()
        return [start.elapsed_time(end) for start, end in events]


def watch_resources() -> dict[str, dict[str, Any]]:
    """Return a table that fills with the resources of each kernel that Triton loads."""
    from triton.compiler.compiler import CompiledKernel

    found: dict[str, dict[str, Any]] = {}
    kernels: Any = CompiledKernel
    original = kernels._init_handles

    def recorded(self: Any) -> Any:
        result = original(self)
        metadata = self.metadata
        found[f"{metadata.name}-{metadata.hash}"] = {
            "kernel": metadata.name, "registers": getattr(self, "n_regs", None), "spills": getattr(self, "n_spills", None),
            "shared_bytes": metadata.shared, "warps": metadata.num_warps,
        }  # fmt: skip
        return result

    kernels._init_handles = recorded
    return found


def measure(case: Case, stopwatch: Stopwatch, loaded: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Measure a kernel and its reference."""
    import torch
    from triton.testing import do_bench

    reference, candidate = build(case)
    loaded.clear()
    with torch.no_grad():
        expected, found = reference(), candidate()
        agrees = _agrees(expected, found)
        del expected, found
        candidate_ms = stopwatch.ms(candidate)
        reference_ms = stopwatch.ms(reference)
        bench_ms = do_bench(candidate, warmup=1, rep=5, return_mode="median")
    return {
        "candidate_ms": statistics.median(candidate_ms),
        "candidate_quartiles": statistics.quantiles(candidate_ms, n=4)[::2],
        "reference_ms": statistics.median(reference_ms),
        "do_bench_ms": bench_ms,
        "agrees": agrees,
        "resources": list(loaded.values()),
    }


def _agrees(expected: Any, found: Any) -> bool:
    import torch

    if not isinstance(expected, torch.Tensor):
        return True
    pairs = (expected.double(), found.double())
    return bool(torch.allclose(*pairs, rtol=5e-2, atol=5e-2, equal_nan=True))


def main() -> None:
    """Compile, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", type=float, default=170.0)
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")) / "estimate_measurements.json")
    parser.add_argument("--processes", type=int, default=max(1, min(14, (os.cpu_count() or 2) - 2)))
    parser.add_argument("--rehearse", action="store_true")
    options = parser.parse_args()
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp(prefix="triton-"))
    cases = all_cases()
    say(f"{len(cases)} cases of {len({(case.family, case.kernel_name) for case in cases})} kernels")
    if options.rehearse:
        for case in cases:
            error = rehearse(case)
            if error is not None:
                say(f"{case.name}: {error}")
        return
    errors = _compiled(cases, options.processes, 0.45 * options.budget)
    import torch
    import triton

    stopwatch, loaded = Stopwatch(), watch_resources()
    document: dict[str, Any] = {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "errors": errors, "measured": {},
    }  # fmt: skip
    for number, case in enumerate(cases):
        if time.monotonic() - STARTED > options.budget - 5:
            say(f"no time for the last {len(cases) - number} cases")
            break
        if case.name in errors:
            continue
        try:
            document["measured"][case.name] = measure(case, stopwatch, loaded)
        except Exception as error:  # noqa: BLE001 (one case must not end the run)
            errors[case.name] = f"{type(error).__name__}: {str(error)[:300]}"
            say(f"{case.name}: {errors[case.name]}")
            if "CUDA error" in errors[case.name]:
                break
        if number % 25 == 24:
            _write(options.out, document)
            say(f"{number + 1} cases, {len(errors)} errors")
    _write(options.out, document)
    wrong = [name for name, row in document["measured"].items() if not row["agrees"]]
    say(f"{len(document['measured'])} measured, {len(errors)} errors, {len(wrong)} disagree: {wrong[:10]}")
    for name, error in list(errors.items())[:40]:
        say(f"  {name}: {error.splitlines()[0][:160] if error else ''}")


def _compiled(cases: list[Case], processes: int, limit_s: float) -> dict[str, str]:
    """Compile all kernels in parallel; returns errors by case."""
    errors: dict[str, str] = {}
    pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
    try:
        futures = [pool.submit(compile_one, case) for case in cases]
        for future in as_completed(futures, timeout=limit_s):
            name, error = future.result()
            if error is not None:
                errors[name] = error
    except Exception as error:  # noqa: BLE001 (what is not compiled here is compiled where it is measured)
        say(f"compiling ended early: {type(error).__name__}: {error}")
    pool.shutdown(wait=False, cancel_futures=True)
    for process in list((getattr(pool, "_processes", None) or {}).values()):
        process.kill()
    say(f"compiled, {len(errors)} errors")
    return errors


def _write(path: Path, document: dict[str, Any]) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(document, indent=1))
    partial.replace(path)


if __name__ == "__main__":
    main()
