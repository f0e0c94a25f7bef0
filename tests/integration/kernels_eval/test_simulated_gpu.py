"""The judge's whole path for GPUs with a simulated device: processes, shared memory, checks, rounds, clocks."""

import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import kernel_sources as sources
import pytest
from kernel_sources import LAUNCH, ROW_KERNEL, with_forward

pytestmark = [pytest.mark.long, pytest.mark.timeout(700)]  # judges on two cores what a device does in a moment
ROOT = Path(__file__).parents[3]
PROBLEM = sources.ROW_PROBLEM.replace("4096, 300", "128, 300")

TWO_OUTPUTS = sources.TRANSPOSED_PROBLEM.replace("1024", "128")
DICTIONARY = TWO_OUTPUTS.replace(
    "return x.t().contiguous(), x.sum(dim=1)", "return {'sum': x.sum(dim=1), 'moved': x.t().contiguous()}"
)
FULL = """
        full = vars(torch).setdefault({condition!r}, [])  # what the problem itself keeps is put back after a call
        if type(x) is torch.Tensor and {condition}:
            full.append(x)
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 192.00 MiB. GPU 0 is small.")
"""


def full_if(condition: str) -> str:
    """Return a problem for whose reference the device's memory is full under a condition."""
    head, body = PROBLEM.split("    def forward(self, x):\n")
    return f"{head}    def forward(self, x):{FULL.format(condition=condition)}{body}"


LINEAR = sources.LINEAR_PROBLEM.replace("2048", "128")
LAYER = "        self.linear = nn.Linear(inner, outer)\n"
SCALE = "        self.scale = nn.Parameter(torch.ones(outer))\n"


def linear_that_keeps(lines: str, *replaced: tuple[str, str]) -> str:
    """Return the kernel of a linear layer with other lines in its constructor, and other texts elsewhere."""
    source = sources.LINEAR_KERNEL
    for old, new in ((LAYER + SCALE, lines), *replaced):
        assert old in source
        source = source.replace(old, new)
    return source


TURNED = linear_that_keeps(
    "        linear = nn.Linear(inner, outer)\n"
    "        self.turned = nn.Parameter(linear.weight.detach().t().contiguous())\n"
    "        self.bias = nn.Parameter(linear.bias.detach())\n" + SCALE,
    ("w_ptr + cols * K + ks[:, None]", "w_ptr + ks[:, None] * N + cols"),
    ("self.linear.weight.shape[0]", "len(self.bias)"),
    ("self.linear.weight, self.linear.bias", "self.turned, self.bias"),
)
SQUARE = LINEAR.replace("[64, 96]", "[64, 64]")
TURN = LAYER + "        self.linear.weight = nn.Parameter(self.linear.weight.detach().t().contiguous())\n"
TURNED_AS_WELL = linear_that_keeps(TURN + SCALE)
OF_ITS_OWN = TURNED.replace(
    "        self.turned = nn.Parameter(linear.weight.detach().t().contiguous())\n",
    "        turned = linear.weight.detach().t().contiguous()\n"
    "        turned.numpy()[:] *= 2\n"
    "        self.turned = nn.Parameter(turned)\n",
).replace("acc += tl.dot", "acc += 0.5 * tl.dot")
CONSTANT = linear_that_keeps(
    LAYER + SCALE + "        self.copied = self.scale.detach().clone()\n", ("self.scale, out", "self.copied, out")
)
DOUBLED = linear_that_keeps(
    LAYER + SCALE + '        self.register_buffer("doubled", self.linear.weight.detach() * 2)\n',
    ("self.linear.weight, self.linear.bias", "self.doubled, self.linear.bias"),
    ("acc += tl.dot", "acc += 0.5 * tl.dot"),
)
HAS_TWICE = LINEAR.replace(LAYER, LAYER + "        self.doubled = self.linear.weight.detach() * 2\n")
TURNED_IN_A_CALL = linear_that_keeps(
    LAYER + SCALE + "        self.turned = None\n",
    ("w_ptr + cols * K + ks[:, None]", "w_ptr + ks[:, None] * N + cols"),
    (
        "    def forward(self, x):\n",
        "    def forward(self, x):\n"
        "        if self.turned is None:\n"
        "            self.turned = self.linear.weight.t().contiguous()\n",
    ),
    ("self.linear.weight, self.linear.bias", "self.turned, self.linear.bias"),
)
COPIED_BY_A_KERNEL = linear_that_keeps(
    LAYER + SCALE + "        self.copied = None\n",
    (
        "    def forward(self, x):\n",
        "    def forward(self, x):\n"
        "        if self.copied is None:\n"
        "            self.copied = torch.empty_like(self.linear.weight)\n"
        "            copy[(1,)](self.linear.weight, self.copied, self.copied.numel(), BLOCK=8192)\n",
    ),
    ("self.linear.weight, self.linear.bias", "self.copied, self.linear.bias"),
    (
        "class ModelNew",
        "@triton.jit\n"
        "def copy(x_ptr, out_ptr, n, BLOCK: tl.constexpr):\n"
        "    k = tl.arange(0, BLOCK)\n"
        "    tl.store(out_ptr + k, tl.load(x_ptr + k, mask=k < n), mask=k < n)\n\n\n"
        "class ModelNew",
    ),
)
GIVEN_UP = linear_that_keeps(
    LAYER + SCALE + "        self.turned = None\n",
    ("w_ptr + cols * K + ks[:, None]", "w_ptr + ks[:, None] * N + cols"),
    (
        "    def forward(self, x):\n",
        "    def forward(self, x):\n"
        "        if self.turned is None:\n"
        "            self.turned = self.linear.weight.t().contiguous()\n"
        "            self.linear.weight.data = torch.empty(0, device=x.device)\n",
    ),
    ("self.linear.weight.shape[0]", "len(self.scale)"),
    ("self.linear.weight, self.linear.bias", "self.turned, self.linear.bias"),
)
KEEPS_TWICE_ITS_WEIGHT = LINEAR.replace(
    "    def forward(self, x):\n",
    """        self.twice = None
    def forward(self, x):
        if self.twice is None:
            self.twice = 2 * self.linear.weight
""",
).replace("self.linear(x)", "nn.functional.linear(x, self.twice, self.linear.bias)")
BOUND = "        self.share = nn.Parameter(0.9 + 0.05 * torch.rand(7))\n"
BOUNDED = LINEAR.replace(SCALE, SCALE + BOUND).replace(
    "self.linear(x)", "torch.where(self.share.amax() > 1, torch.nan, 1.0) * self.linear(x)"
)

GATHERED = (
    ROW_KERNEL
    + ROW_KERNEL.split("class ModelNew")[0]
    .replace("def kernel(x_ptr, out_ptr", "def all_at_once(x_ptr, out_ptr, x_step, out_step")
    .replace("_ptr + rows", "_ptr + tl.program_id(1) * STEP + rows")
    .replace("x_ptr + tl.program_id(1) * STEP", "x_ptr + tl.program_id(1) * x_step")
    .replace("out_ptr + tl.program_id(1) * STEP", "out_ptr + tl.program_id(1) * out_step")
    + """
import sys
rounds = sys.modules["kernels_eval.gpu.candidate.rounds"].Rounds
make = rounds._make_timed_calls

def made(self, indices):
    calls, memory = self._header["calls"], self.memory.tensor
    x_at, out_at = ([call[kind][0]["offset"] for call in calls] for kind in ("inputs", "outputs"))
    steps = [(at[-1] - at[0]) // max(1, len(calls) - 1) // 4 for at in (x_at, out_at)]
    x, out = (memory[at[0] :][: 4 * 128 * 300].view(torch.float32) for at in (x_at, out_at))
    all_at_once[32, len(calls)](x, out, *steps, 128, 300, ROWS=4, BLOCK=512)
    forms = {"kind": "tensor", "dtype": "float32", "shape": (128, 300), "expanded": False}
    self._outcomes += [{"structure": "a tensor", "outputs": [forms]}] * len(calls)

rounds._make_timed_calls = made
"""
)


def with_lost_profiles(condition: str) -> str:
    """Return a kernel of whose profiles, counted from 1, those have no record for which a condition holds."""
    return (
        ROW_KERNEL
        + f"""
import sys
profiler, profiles = sys.modules["__main__"].SimulatedProfiler, []
records = profiler.records

def lossy(self, work):
    number = len(profiles) + 1
    profiles.append(number)
    found = records(self, work)
    return [] if {condition} else found

profiler.records = lossy
"""
    )


CASES: dict[str, tuple[str, str, str, str | None]] = {
    "right": (PROBLEM, ROW_KERNEL, "correct", None),
    "a first profile without a record": (PROBLEM, with_lost_profiles("number == 1"), "correct", None),
    "no profile with a record": (PROBLEM, with_lost_profiles("True"), "rejected", "no_kernel_launched"),
    "no timed profile with a record": (PROBLEM, with_lost_profiles("number > 1"), "rejected", "unlike_profile"),
    "all timed calls in one launch": (PROBLEM, GATHERED, "rejected", "unlike_profile"),
    "with weights": (LINEAR, sources.LINEAR_KERNEL, "correct", None),
    "a weight that is registered transposed": (LINEAR, TURNED, "correct", None),
    "another weight that is registered transposed": (
        LINEAR,
        TURNED.replace("contiguous()", "contiguous() * 2"),
        "incorrect",
        "missing_parameter",
    ),
    "a square weight that is registered transposed": (SQUARE, TURNED, "correct", None),
    "a square weight that the problem registers transposed": (
        SQUARE.replace(LAYER, TURN),
        TURNED_AS_WELL,
        "correct",
        None,
    ),
    "a square weight that is transposed for nothing": (SQUARE, TURNED_AS_WELL, "incorrect", "wrong_values"),
    "a transposed weight with values of its own": (LINEAR, OF_ITS_OWN, "incorrect", "missing_parameter"),
    "a square weight with values of its own": (SQUARE, OF_ITS_OWN, "incorrect", "wrong_values"),
    "a copy of what the judge varies": (LINEAR, CONSTANT, "correct", None),
    "twice what the judge varies": (LINEAR, CONSTANT.replace("clone()", "clone() * 1"), "incorrect", "wrong_values"),
    "twice a weight that the judge sets": (LINEAR, DOUBLED, "incorrect", "wrong_values"),
    "twice a weight, as the problem has it": (
        HAS_TWICE.replace("self.linear(x)", "nn.functional.linear(x, 0.5 * self.doubled, self.linear.bias)"),
        DOUBLED,
        "correct",
        None,
    ),
    "twice a weight, which the problem has and does not use": (HAS_TWICE, DOUBLED, "incorrect", "wrong_values"),
    "a weight that the first call transposes": (LINEAR, TURNED_IN_A_CALL, "correct", None),
    "a weight that a kernel of the first call copies": (LINEAR, COPIED_BY_A_KERNEL, "incorrect", "wrong_values"),
    "a weight that the first call gives up for its copy": (LINEAR, GIVEN_UP, "correct", None),
    "without a parameter that the result does not need": (
        LINEAR.replace(SCALE, SCALE + "        self.unused = nn.Parameter(torch.randn(5))\n"),
        sources.LINEAR_KERNEL,
        "correct",
        None,
    ),
    "a reference that keeps what its first call made of a weight": (
        KEEPS_TWICE_ITS_WEIGHT,
        linear_that_keeps(LAYER + SCALE, ("acc += tl.dot", "acc += 2 * tl.dot")),
        "correct",
        None,
    ),
    "a parameter that training takes out of its bounds": (
        BOUNDED,
        linear_that_keeps(LAYER + SCALE + BOUND),
        "correct",
        None,
    ),
    "two outputs": (TWO_OUTPUTS, sources.TRANSPOSED_KERNEL, "correct", None),
    "a dictionary": (
        DICTIONARY,
        sources.TRANSPOSED_KERNEL.replace("return out, total", "return {'moved': out, 'sum': total}"),
        "correct",
        None,
    ),
    "a tuple for a dictionary": (DICTIONARY, sources.TRANSPOSED_KERNEL, "incorrect", "wrong_type"),
    "more results than there may be": (
        PROBLEM,
        ROW_KERNEL.replace("return out", "return [out] * 300"),
        "runtime_error",
        "exception",
    ),
    "wrong": (PROBLEM, ROW_KERNEL.replace("x * 2.0", "x * 2.1"), "incorrect", "wrong_values"),
    "part of the rows": (PROBLEM, ROW_KERNEL.replace("triton.cdiv(M, 4)", "16"), "incorrect", "wrong_values"),
    "right at the true size only": (
        PROBLEM,
        ROW_KERNEL.replace("triton.cdiv(M, 4)", "32").replace("(rows < M) & ", "(rows < 128) & "),
        "runtime_error",
        "exception",  # the interpreter's out-of-bounds error, which no real device raises
    ),
    "no memory for float64": (full_if("x.dtype is torch.float64"), ROW_KERNEL, "correct", None),
    "memory full once": (full_if("len(x) == 128 and not full"), ROW_KERNEL, "correct", None),
    "inputs that have the memory of all calls": (
        full_if("x.untyped_storage().nbytes() > 8 * x.numel()"),
        ROW_KERNEL,
        "correct",
        None,
    ),
    "memory full": (full_if("len(x) == 128"), ROW_KERNEL, "infrastructure_error", "reference_failed"),
    "the library": (PROBLEM, with_forward("        return torch.softmax(x, 1)\n"), "rejected", "library_compute"),
    "a caught violation": (
        PROBLEM,
        with_forward(
            LAUNCH
            + "        try:\n            torch.softmax(x, 1)\n        except Exception:\n            pass\n        return out\n"
        ),
        "rejected",
        "library_compute",
    ),
    "changes its input": (
        PROBLEM,
        with_forward(LAUNCH + "        x.zero_()\n        return out\n"),
        "rejected",
        "changed_input",
    ),
    "cached by shape": (
        PROBLEM,
        with_forward(
            "        if x.shape in CACHE:\n            return CACHE[x.shape]\n"
            + LAUNCH
            + "        CACHE[x.shape] = out\n        return out\n",
            "CACHE = {}",
        ),
        "incorrect",
        "wrong_values",
    ),
    "cached by pointer": (
        PROBLEM,
        with_forward(
            "        if x.data_ptr() in CACHE:\n            return CACHE[x.data_ptr()]\n"
            + LAUNCH
            + "        CACHE[x.data_ptr()] = out\n        return out\n",
            "CACHE = {}",
        ),
        "incorrect",
        "wrong_values",
    ),
    "stops working after a while": (
        PROBLEM,
        with_forward(
            "        CALLS.append(1)\n"
            + LAUNCH.replace("        kernel[", "        if len(CALLS) < 12: kernel[")
            + "        return out\n",
            "CALLS = []",
        ),
        "incorrect",
        "wrong_values",
    ),
    "no kernel": (PROBLEM, with_forward("        return torch.zeros_like(x)\n"), "incorrect", "wrong_values"),
    "a lazy tensor": (
        PROBLEM,
        with_forward(LAUNCH + "        return out.as_subclass(Lazy)\n", "class Lazy(torch.Tensor): pass"),
        "incorrect",
        "wrong_type",
    ),
    "a thread": (
        PROBLEM,
        with_forward(
            LAUNCH
            + "        import threading, time\n        threading.Thread(target=time.sleep, args=(5,), daemon=True).start()\n        return out\n"
        ),
        "rejected",
        "background_thread",
    ),
    "expanded": (PROBLEM, with_forward(LAUNCH + "        return out[:1].expand(M, N)\n"), "incorrect", "wrong_values"),
    "an empty round that was slow": (PROBLEM.replace("128, 300", "128, 301"), ROW_KERNEL, "correct", None),
    "early exit": (PROBLEM, with_forward("        import os\n        os._exit(0)\n"), "runtime_error", "no_answer"),
    "an exception": (PROBLEM, with_forward("        raise ValueError('boo')\n"), "runtime_error", "exception"),
    "not Python": (PROBLEM, "def f(:\n", "compile_error", "syntax_error"),
    "hangs while it is tuned": (
        PROBLEM,
        with_forward("        import time\n        time.sleep(60)\n")
        + "\nTUNED = triton.autotune([triton.Config({'ROWS': rows}) for rows in range(36)], key=['M'])(kernel)\n",
        "timeout",
        "timeout",
    ),
    "hangs": (PROBLEM, with_forward("        import time\n        time.sleep(60)\n"), "timeout", "timeout"),
}


@pytest.fixture(scope="module")
def verdicts() -> dict[str, dict[str, Any]]:
    config = {"timeout_s": 90.0, "compile_timeout_s": 2.0, "timing_rounds": 2, "timing_s": 2.0}
    slow = {"timeout_s": 0.5}
    changed: dict[str, dict[str, Any]] = {
        "hangs": slow,
        "hangs while it is tuned": slow,
        "with weights": {"second_baseline": "eager"},
    }
    requests = [
        {"problem": problem, "kernel": kernel, "config": {**config, **changed.get(name, {})}}
        | ({"overhead_s": 60.0} if name == "an empty round that was slow" else {})
        for name, (problem, kernel, _, _) in CASES.items()
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tests/doubles/simulated_device.py")]
    lines = "\n".join(json.dumps(request) for request in requests)
    ran = subprocess.run(command, input=lines, capture_output=True, text=True, env=environment, timeout=600)
    found = [json.loads(line) for line in ran.stdout.splitlines()]
    assert len(found) == len(CASES), ran.stderr[-3000:]
    return dict(zip(CASES, found, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_verdicts(verdicts: dict[str, dict[str, Any]], name: str) -> None:
    _, _, status, category = CASES[name]
    verdict = verdicts[name]
    assert (verdict["status"], verdict["error_category"]) == (status, category), verdict
    assert verdict["hardware"] == ("" if status == "infrastructure_error" else "Simulated H100")
    assert (verdict["timing_source"] == "gpu") == (status == "correct")
    assert (verdict["speedup"] is not None) == (status == "correct")
    second = verdict["second_reference_ms"]
    assert second > 0 if name == "with weights" else second is None
    assert (verdict["profile"] is not None) == (status == "correct")


def test_a_problem_that_does_not_fit_is_told_with_the_place(verdicts: dict[str, dict[str, Any]]) -> None:
    message = verdicts["memory full"]["error_message"]
    assert "the problem does not fit into this worker's" in message
    assert "results > run > run_and_keep > call" in message
    assert message.endswith("CUDA out of memory. Tried to allocate 192.00 MiB")


def test_a_first_call_that_is_too_slow_is_told_with_its_configurations_and_the_setting(
    verdicts: dict[str, dict[str, Any]],
) -> None:
    message = verdicts["hangs while it is tuned"]["error_message"]
    assert "ran longer than 2.5 s in a first call" in message
    assert "up to 36 configurations: have fewer, or raise judge.compile_timeout_s" in message
    assert "configurations" not in verdicts["hangs"]["error_message"]


def test_the_profile_has_the_candidates_kernels(verdicts: dict[str, dict[str, Any]]) -> None:
    profile = verdicts["right"]["profile"]
    assert [(kernel["name"], kernel["launches"], kernel["is_own"]) for kernel in profile["kernels"]] == [
        ("kernel", 1.0, True)
    ]
    assert profile["launches"] == profile["own_share"] == 1.0
    moved = 2 * 128 * 300 * 4
    assert profile["gigabytes_per_s"] == pytest.approx(moved / verdicts["right"]["candidate_ms"] / 1e6)
    assert profile["teraflops_per_s"] == 0.0
    assert 0.0 < profile["roofline_share"] < 1.0


@pytest.mark.long
def test_workers_that_share_a_device_end(tmp_path: Path) -> None:
    """Each waits for the others while it times and they check, and none waits for ever."""
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    config = {"timeout_s": 90.0, "timing_rounds": 3, "timing_s": 1.0}
    problem = PROBLEM.replace("128, 300", "16, 64")
    request = json.dumps({"problem": problem, "kernel": ROW_KERNEL, "config": config}) + "\n"
    workers = [
        subprocess.Popen(
            [sys.executable, str(ROOT / "tests/doubles/simulated_device.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment,
        )
        for _ in range(3)
    ]  # fmt: skip
    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(lambda worker: worker.communicate(2 * request, timeout=200)[0], workers))
    verdicts = [json.loads(line) for answer in answers for line in answer.splitlines()]
    assert [verdict["status"] for verdict in verdicts] == ["correct"] * 6, [v["error_message"] for v in verdicts]
    assert (tmp_path / "device.lock").exists()


def test_the_phases_of_a_verdict_are_its_time() -> None:
    """A wrong kernel's too: its first call, in which it is compiled, counts as that."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tests/doubles/simulated_device.py")]
    kernels = (ROW_KERNEL, ROW_KERNEL.replace("x * 2.0", "x * 2.1"))
    requests = [
        {"problem": PROBLEM.replace("128, 300", "16, 64"), "kernel": kernel, "has_seconds": True} for kernel in kernels
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        for request, more in zip(requests, ({"compile", "profile", "rounds"}, {"compile"}), strict=True):
            started = time.perf_counter()
            worker.stdin.write(json.dumps(request) + "\n")
            worker.stdout.readline()
            seconds = json.loads(worker.stdout.readline())
            phases, device = seconds["phases"], seconds["device"]
            spent_s = time.perf_counter() - started
            assert set(phases) == {"reference", "before", "ready", "load", "end"} | more
            assert min(phases.values()) >= 0.0
            assert sum(phases.values()) < spent_s
            assert 0.0 < device["shared"] < spent_s
            assert (device["alone"] > 0.0) is ("rounds" in phases), "what is not timed needs nobody out of the way"
            assert max(device["alone_waited"], device["shared_waited"]) < spent_s / 2, "there is no other worker"
        worker.stdin.close()


STAYS = """
import os, time
started = os.fork()
if started == 0:
    time.sleep(300)
open("started", "w").write(str(started))
"""
LOADED = """
import time
open("loaded", "w").close()
time.sleep(1.0)
"""


def runs(process: int) -> bool:
    """True if a process exists and has not ended (a zombie has)."""
    try:
        return Path(f"/proc/{process}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_nothing_of_a_candidate_is_left_when_the_next_ones_code_runs(tmp_path: Path) -> None:
    """A verdict does not wait for the end of its candidate's processes; the next candidate's code does."""
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(ROOT / "tests/doubles/simulated_device.py")]
    wrong = ROW_KERNEL.replace("x * 2.0", "x * 2.1")
    requests = [
        json.dumps({"problem": PROBLEM.replace("128, 300", "16, 64"), "kernel": wrong + more}) + "\n"
        for more in (STAYS, LOADED)
    ]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, env=environment
    ) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(requests[0])
        verdict = json.loads(worker.stdout.readline())
        assert verdict["status"] == "incorrect", verdict["error_message"]
        (started,) = (int(path.read_text()) for path in tmp_path.glob("candidate-*/started"))
        worker.stdin.write(requests[1])
        until = time.monotonic() + 60
        while not list(tmp_path.glob("candidate-*/loaded")) and time.monotonic() < until:
            time.sleep(0.01)
        assert len(list(tmp_path.glob("candidate-*"))) == 1
        assert not runs(started)
        verdict = json.loads(worker.stdout.readline())
        assert verdict["status"] == "incorrect", verdict["error_message"]
        worker.stdin.close()
