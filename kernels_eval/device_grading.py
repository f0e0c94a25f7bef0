"""Grades one candidate on a GPU: load, check, look at what ran, and only then time it.

Order, with an early exit at the first failure: trials at the true size (the first input set twice, so that a second call on the
same input is checked too), a trial at another leading size where the problem has one, a profiled round, for policy `mixed` a
round in which the candidate's kernels do nothing, then timing rounds (kernels_eval.device_timing). A wrong kernel is never timed.
"""

import os
import secrets
import shutil
import tempfile
from collections import OrderedDict
from pathlib import Path
from statistics import median
from typing import Any

import torch

from kernels_eval import cuda_driver
from kernels_eval.backends import Backend, backend_named
from kernels_eval.config import JudgeConfig
from kernels_eval.confinement import Limits
from kernels_eval.conversation import CandidateFailedError
from kernels_eval.coverage import coverage_of
from kernels_eval.cuda_driver import CudaDriver
from kernels_eval.device_checks import Errors, check_coverage, check_dependence, check_round
from kernels_eval.device_conversation import DeviceConversation, Round, RoundRequest, SharedCalls, anonymous_file
from kernels_eval.device_facts import device_facts
from kernels_eval.device_lock import DeviceLock
from kernels_eval.device_memory import HostTransport, IpcTransport, Transport, lay_out
from kernels_eval.device_reference import DeviceReference, set_precision
from kernels_eval.device_timing import Measured, Rehearsed, Timer, TimingPlan
from kernels_eval.errors import InfrastructureError
from kernels_eval.inputs import SecretSeed
from kernels_eval.nursery import Nursery
from kernels_eval.reference import Truth
from kernels_eval.stopwatch import Stopwatch
from kernels_eval.tensors import NAMES, TensorForm, form_of
from kernels_eval.timing import ROUND_LATENCY_S, floor_s
from kernels_eval.verdict import Resources, Status, TimingSource, Verdict

_MAX_REFERENCES = 32
_SHARED_BUDGET = 3 << 30
"""Bytes of device memory for the sets of one round of timed calls."""
_CALLS = 20
_SPARE_WALL_S = 60.0
"""Wall time beyond a candidate's own: for the judge's part of the conversation, and for waiting for the device."""
_SLOWED = 1.5
_PROFILED_SHARE = 0.6
"""Of the device time of kernels in a profiled call, which a timed call takes at least."""
_COPY_BYTES_PER_S = 1e9
_REHEARSED_PAUSE_S = 300e-6
"""Hides the enqueueing of most candidates (100 to 200 µs, mostly Triton's launcher), so that their rounds are like the rehearsed ones."""
_REHEARSALS = 4


class DeviceGrader:
    """Holds the references of one worker and grades candidates that its nursery bears. Creates this process's CUDA context."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        set_precision()
        torch.zeros(1, device=cuda_driver.DEVICE)  # makes the CUDA context, without which the driver gives no events
        self.facts = device_facts()
        self._driver = CudaDriver()
        self._stopwatch = Stopwatch(self._driver)
        self._timer = Timer(self._stopwatch, self._driver.synchronize)
        self._descriptor = anonymous_file()
        self._transport: Transport = IpcTransport(self._driver)
        self._references: OrderedDict[str, DeviceReference] = OrderedDict()
        self._best_reference_s: dict[tuple[str, str], float] = {}
        self._rehearsed: OrderedDict[str, Rehearsed] = OrderedDict()
        self._weight_seed = secrets.randbits(48)
        self._folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir()))
        self._lock = DeviceLock(self._folder / "device.lock")
        self.last_measured: Measured | None = None

    @property
    def sandbox(self) -> list[str]:
        """What keeps candidates in, and how tensors pass."""
        return [*self._nursery.sandbox, self._transport.name]

    def use_host_copies(self) -> None:
        """Pass tensors through host memory: for machines on which device memory cannot be shared between processes."""
        self._transport = HostTransport(self._driver, self._descriptor)

    def probe(self) -> None:
        """Find out whether a candidate's process can map the judge's memory; use host copies where it cannot."""
        self._transport.memory(1 << 21)
        job = self._job("", "triton", {}, [], 0, strict=True, scratch=str(self._folder))
        try:
            with DeviceConversation(self._nursery, Limits(_SPARE_WALL_S, 1024), self._descriptor) as conversation:
                conversation.wake(job)
                conversation.begin()
        except CandidateFailedError:
            return  # it has no model: it got as far as being loaded
        except InfrastructureError:
            self.use_host_copies()
            self._transport.memory(1 << 21)

    def grade(self, problem_source: str, kernel_source: str, config: JudgeConfig, build: dict[str, Any]) -> Verdict:
        """Grade one candidate. Raises ReferenceFailedError where the problem itself is at fault."""
        reference = self._reference(problem_source)
        seed = SecretSeed(secrets.token_bytes(16))
        scratch = tempfile.mkdtemp(dir=self._folder, prefix="candidate-")
        try:
            grading = _Grading(self, reference, kernel_source, config, build, seed, scratch)
            verdict = grading.verdict()
            self.last_measured = grading.measured
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return verdict.model_copy(
            update={
                "hardware": self.facts.name,
                "sandbox": ",".join(self.sandbox),
                "seed_commitment": seed.commitment,
            }
        )

    def _reference(self, source: str) -> DeviceReference:
        reference = self._references.pop(source, None) or DeviceReference(source, self._weight_seed)
        self._references[source] = reference
        if len(self._references) > _MAX_REFERENCES:
            self._references.popitem(last=False)
        return reference

    def _job(
        self,
        source: str,
        backend: str,
        build: dict[str, Any],
        arguments: list[Any],
        weight_seed: int,
        strict: bool,
        scratch: str,
    ) -> dict[str, Any]:
        return {
            "source": source,
            "backend": backend,
            "build": build,
            "arguments": arguments,
            "weight_seed": weight_seed,
            "strict": strict,
            "scratch": scratch,
            "memory": self._transport.ticket(),
        }


class _Grading:
    """One candidate's way to its verdict."""

    def __init__(
        self,
        grader: DeviceGrader,
        reference: DeviceReference,
        source: str,
        config: JudgeConfig,
        build: dict[str, Any],
        seed: SecretSeed,
        scratch: str,
    ) -> None:
        self._grader: Any = grader
        self._reference = reference
        self._source = source
        self._config = config
        self._build = build
        self._seed = seed
        self._scratch = scratch
        self._backend: Backend = backend_named(config.backend)
        self._own_names = self._backend.own_kernels(source)
        self._strict = config.policy == "strict"
        self._errors = Errors()
        self._resources: tuple[Resources, ...] = tuple(Resources(**used) for used in build.get("resources", []))
        self._drawn = 0
        self._perturbed = False
        self._rehearsed = Rehearsed(0.0, 0.0)
        self.measured: Measured | None = None

    def verdict(self) -> Verdict:
        config = self._config
        wall_s = config.timeout_s + config.compile_timeout_s + config.timing_s + _SPARE_WALL_S
        limits = Limits(wall_s=wall_s, memory_mb=config.memory_mb)
        compiled = self._backend.builds
        try:
            calls, truths = self._trial_calls(None)
            self._grader._transport.memory(max(calls.nbytes, self._timing_layout_bytes(truths)))
            with DeviceConversation(self._grader._nursery, limits, self._grader._descriptor) as conversation:
                self._load(conversation, truths[0])
                compiled = True
                if self._perturbed:
                    calls, truths = self._trial_calls(None)
                first_wall_s = config.timeout_s + config.compile_timeout_s
                made = conversation.run(calls, RoundRequest(resources=True), first_wall_s)
                check_round(made, calls, truths, self._errors)
                self._resources = self._resources or made.answer.resources
                self._try_hidden_size(conversation)
                return self._timed(conversation)
        except CandidateFailedError as failed:
            return self._failure(failed, compiled)

    def _load(self, conversation: DeviceConversation, truth: Truth) -> None:
        reference = self._reference
        job = self._grader._job(
            self._source,
            self._config.backend,
            self._build,
            reference.arguments,
            reference.weight_seed,
            self._strict,
            self._scratch,
        )
        conversation.wake(job)
        self._rehearsed = self._rehearse(conversation, truth)
        state = conversation.begin()
        wanted = reference.state(False)

        def matches(name: str) -> bool:
            tensor = wanted[name]
            return state.get(name) == (NAMES.get(tensor.dtype, "?"), tuple(tensor.shape))

        self._perturbed = bool(wanted) and all(matches(name) for name in wanted)
        weights = reference.state(self._perturbed)
        conversation.set_weights({name: weights[name] for name in wanted if matches(name)})

    def _rehearse(self, conversation: DeviceConversation, truth: Truth) -> Rehearsed:
        """Return what a round of this problem takes beside its calls; measured once, in a process that has no candidate yet."""
        known = self._grader._rehearsed
        if self._reference.digest not in known:
            forms = output_forms(truth)
            calls = self._shared([self._own_inputs() for _ in range(self._calls_a_round(truth))], forms)
            request = RoundRequest(_REHEARSED_PAUSE_S, poison=False)
            beside_s: list[float] = []
            with self._grader._lock:
                for _ in range(_REHEARSALS):
                    made = conversation.rehearse(calls, forms, request, _SPARE_WALL_S)
                    beside_s.append(made.host_s - sum(made.answer.device_ms) / 1e3)
            known[self._reference.digest] = Rehearsed(_REHEARSED_PAUSE_S, median(beside_s))
            if len(known) > _MAX_REFERENCES:
                known.popitem(last=False)
        return known[self._reference.digest]

    def _set(self, size: int | None, own: bool) -> tuple[list[Any], Truth]:
        """Draw one input set on which the reference is finite, and what the reference makes of it."""
        number = self._drawn
        self._drawn += 1
        inputs = self._reference.draw(size, number, self._seed, own)
        truth = self._reference.truth(inputs, self._perturbed)
        if not own and not truth.is_finite:
            inputs = self._reference.draw(size, number, self._seed, own=True)
            truth = self._reference.truth(inputs, self._perturbed)
        return inputs, truth

    def _own_inputs(self) -> list[Any]:
        """Draw one input set from the problem's own distribution."""
        self._drawn += 1
        return self._reference.draw(None, self._drawn, self._seed, own=True)

    def _shared(self, sets: list[list[Any]], forms: list[TensorForm]) -> SharedCalls:
        layout = lay_out(input_forms(sets[0]), [form.nbytes for form in forms], len(sets))
        return SharedCalls(self._grader._transport, layout, sets, forms)

    def _trial_calls(self, size: int | None) -> tuple[SharedCalls, list[Truth]]:
        """Sets of different distributions, the first one twice."""
        first = self._set(size, own=True)
        count = max(self._config.trials, 2) if size is None else 1
        sets = [first, first, *(self._set(size, own=False) for _ in range(count - 1))]
        return self._shared([values for values, _ in sets], output_forms(first[1])), [truth for _, truth in sets]

    def _try_hidden_size(self, conversation: DeviceConversation) -> None:
        reference = self._reference
        if not reference.can_be_reduced or reference.true_size is None:
            return
        calls, truths = self._trial_calls(reference.true_size // 2)
        made = conversation.run(calls, RoundRequest(), self._config.timeout_s + self._config.compile_timeout_s)
        check_round(made, calls, truths, self._errors)

    def _calls_a_round(self, truth: Truth) -> int:
        forms = [form for form in self._reference.true_forms if isinstance(form, TensorForm)]
        nbytes = sum(form.nbytes for form in (*forms, *output_forms(truth)))
        return int(min(_CALLS, max(4, _SHARED_BUDGET // max(nbytes, 1))))

    def _timing_layout_bytes(self, truths: list[Truth]) -> int:
        """Size of the shared memory that timing needs: it must not move once the candidate has mapped it."""
        forms = output_forms(truths[0])
        layout = lay_out(self._reference.true_forms, [form.nbytes for form in forms], self._calls_a_round(truths[0]))
        return layout.nbytes

    def _timed(self, conversation: DeviceConversation) -> Verdict:
        config, grader = self._config, self._grader
        sets = [self._set(None, own=True) for _ in range(2)]
        truths = [truth for _, truth in sets]
        forms = output_forms(truths[0])
        count = self._calls_a_round(truths[0])
        with grader._lock:
            profiled = self._shared([values for values, _ in sets], forms)
            made = conversation.run(profiled, RoundRequest(profiled=True, poison=False), config.timeout_s)
            check_round(made, profiled, truths, self._errors)
            coverage = coverage_of(made.answer.kernels, self._own_names)
            check_coverage(coverage, self._own_names, config)
            if not self._strict and self._backend.can_suppress:
                request = RoundRequest(suppressed=True)
                check_dependence(conversation.run(profiled, request, config.timeout_s), profiled, truths)
            settling = conversation.run(profiled, RoundRequest(poison=False), config.timeout_s)
            check_round(settling, profiled, truths, self._errors)
            drawn: list[list[Any]] = []

            def new_calls(number: int) -> SharedCalls:
                drawn[:] = [self._own_inputs() for _ in range(count)]
                return self._shared(drawn, forms)

            def check(number: int, made: Round, calls: SharedCalls) -> None:
                truths_made = (self._reference.truth(inputs, self._perturbed) for inputs in drawn)
                check_round(made, calls, truths_made, self._errors)
                if made.answer.kernels:
                    check_coverage(coverage_of(made.answer.kernels, self._own_names), self._own_names, config)

            latency_s = ROUND_LATENCY_S
            if grader._transport.name != IpcTransport.name:
                latency_s += 2 * self._timing_layout_bytes(truths) / _COPY_BYTES_PER_S
            plan = TimingPlan(
                calls=count,
                synchronised=coverage.uses_side_streams,
                precision=config.timing_precision,
                rounds=config.timing_rounds,
                wall_s=config.timing_s,
                call_wall_s=config.timeout_s,
                latency_s=latency_s,
                profiled_round=secrets.randbelow(3),
            )
            measured = grader._timer.measure(
                plan,
                self._reference.forward(self._perturbed, config.baseline == "compile"),
                forms,
                new_calls,
                lambda calls, request: conversation.run(calls, request, config.timeout_s),
                check,
                settling.answer.enqueue_s,
                self._rehearsed,
            )
        self.measured = measured
        least_ns = 0.0 if coverage.uses_side_streams else coverage.computing_ns / len(sets)
        if 1e9 * measured.candidate.median < _PROFILED_SHARE * least_ns:
            message = f"timed calls take {1e6 * measured.candidate.median:.2f} µs, the profiled one ran kernels for {least_ns / 1e3:.2f} µs"
            raise CandidateFailedError(Status.REJECTED, "unlike_profile", message)
        return self._correct(measured, forms)

    def _correct(self, measured: Measured, forms: list[TensorForm]) -> Verdict:
        config, grader, reference = self._config, self._grader, self._reference
        candidate_s, reference_s = measured.candidate.median, measured.reference.median
        key = (reference.digest, config.baseline)
        best = grader._best_reference_s.get(key)
        if best is not None and reference_s > _SLOWED * best:
            message = f"the reference took {1e3 * reference_s:.4f} ms beside this kernel, {1e3 * best:.4f} ms before"
            raise CandidateFailedError(Status.REJECTED, "slowed_reference", message)
        grader._best_reference_s[key] = min(reference_s, best or reference_s)
        read = sum(form.nbytes for form in reference.true_forms if isinstance(form, TensorForm))
        flops = sum(launch.flops for launch in reference.eager_launches)
        least = floor_s(read, sum(form.nbytes for form in forms), flops, grader.facts.rates)
        if candidate_s < least:
            message = f"{1e6 * candidate_s:.2f} µs is less than the {1e6 * least:.2f} µs that the device needs at best"
            raise CandidateFailedError(Status.REJECTED, "below_roofline", message)
        return Verdict(
            status=Status.CORRECT,
            compiled=True,
            correct=True,
            speedup=reference_s / candidate_s,
            candidate_ms=1e3 * candidate_s,
            reference_ms=1e3 * reference_s,
            timing_source=TimingSource.GPU,
            max_abs_error=self._errors.absolute,
            max_rel_error=self._errors.relative,
            resources=self._resources,
        )

    def _failure(self, failed: CandidateFailedError, compiled: bool) -> Verdict:
        rejected = failed.status is Status.REJECTED
        return Verdict(
            status=failed.status,
            compiled=compiled and failed.status is not Status.COMPILE_ERROR,
            rejection_reason=failed.category if rejected else None,
            error_category=failed.category,
            error_message=failed.message,
            resources=self._resources,
        )


def input_forms(inputs: list[Any]) -> list[Any]:
    """Forms of the tensors among the inputs, the plain values as they are."""
    return [form_of(value) if hasattr(value, "dtype") else value for value in inputs]


def output_forms(truth: Truth) -> list[TensorForm]:
    """Forms of the outputs that are expected."""
    return [form_of(tensor) for tensor in truth.native]
