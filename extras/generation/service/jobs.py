"""Jobs on disk: one SQLite file, written through at every change; nothing is lost if the process is killed.

Tables: `jobs`, one row a job, with its request and result as JSON; `events`, the progress of each, numbered from 1.
Attempts are events: a job that was interrupted goes on after its last one. One process at a time has the file.
"""

import json
import sqlite3
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from extras.generation.result import GeneratedKernel, Outcome
from extras.generation.search import Attempt
from extras.generation.service.schemas import JobEvent, JobState, KernelRequest
from kernels_eval.errors import InputError
from kernels_eval.frozen import FrozenModel

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
  number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, idempotency_key TEXT UNIQUE,
  request TEXT NOT NULL, problem_digest TEXT NOT NULL, cache_key TEXT NOT NULL, state TEXT NOT NULL,
  failures INTEGER NOT NULL DEFAULT 0, not_before REAL NOT NULL DEFAULT 0, error TEXT, result TEXT,
  cached INTEGER NOT NULL DEFAULT 0, judged INTEGER NOT NULL DEFAULT 0, best_speedup REAL,
  created_at REAL NOT NULL, started_at REAL, ended_at REAL
);
CREATE INDEX IF NOT EXISTS jobs_by_state ON jobs (state, number);
CREATE INDEX IF NOT EXISTS jobs_by_cache_key ON jobs (cache_key);
CREATE TABLE IF NOT EXISTS events (job TEXT NOT NULL, number INTEGER NOT NULL, line TEXT NOT NULL, PRIMARY KEY (job, number));
"""  # noqa: E501
_VERSION = 1


class Job(FrozenModel):
    """One stored job."""

    number: int
    id: str
    idempotency_key: str | None
    request: KernelRequest
    problem_digest: str
    cache_key: str
    state: JobState
    failures: int
    """Faults of the machine since the last progress."""
    not_before: float
    error: str | None
    result: GeneratedKernel | None
    cached: bool
    judged: int
    best_speedup: float | None
    created_at: float
    started_at: float | None
    ended_at: float | None


class JobStore:
    """The file. For one thread."""

    def __init__(self, folder: Path) -> None:
        """Open or make `jobs.sqlite` in a folder. Raises InputError if another process has it, or it is none."""
        path = folder / "jobs.sqlite"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0.5)
            self._database.row_factory = sqlite3.Row
            for pragma in ("locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
                self._database.execute(f"PRAGMA {pragma}")
            self._database.execute("BEGIN EXCLUSIVE")
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            self._database.execute("COMMIT")
            if version not in (0, _VERSION):
                raise InputError(f"{path}: jobs of version {version}, expected {_VERSION}")
            self._database.executescript(f"{_SCHEMA} PRAGMA user_version={_VERSION};")
        except (OSError, sqlite3.Error) as error:
            raise InputError(f"{path}: cannot be opened; another service may be using it: {error}") from error

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def add(
        self, request: KernelRequest, problem_digest: str, cache_key: str, idempotency_key: str | None
    ) -> tuple[Job, bool]:
        """Store a job; return it, and False if there already is one with this idempotency key, which is returned."""
        known = self.with_key(idempotency_key)
        if known is not None:
            return known, False
        name = uuid4().hex
        with self._database:
            self._database.execute("BEGIN")
            self._database.execute(
                "INSERT INTO jobs (id, idempotency_key, request, problem_digest, cache_key, state, created_at) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    name, idempotency_key, request.model_dump_json(), problem_digest, cache_key, JobState.QUEUED.value,
                    time.time(),
                ),
            )  # fmt: skip
            self._event(name, "queued")
        return self.job(name), True

    def with_key(self, idempotency_key: str | None) -> Job | None:
        """Return the job that was stored with a key; None if there is none, or no key."""
        if idempotency_key is None:
            return None
        return self._one("SELECT * FROM jobs WHERE idempotency_key = ?", idempotency_key)

    def job(self, name: str) -> Job:
        """Return a job. Raises KeyError if there is none of this id."""
        found = self._one("SELECT * FROM jobs WHERE id = ?", name)
        if found is None:
            raise KeyError(name)
        return found

    def newest(self, limit: int) -> list[Job]:
        """Return jobs, the newest first."""
        return self._many("SELECT * FROM jobs ORDER BY number DESC LIMIT ?", limit)

    def count(self, state: JobState) -> int:
        """Return the number of jobs in a state."""
        return int(self._database.execute("SELECT count(*) FROM jobs WHERE state = ?", (state.value,)).fetchone()[0])

    def requeue_interrupted(self) -> int:
        """Queue the jobs that a killed process was working on; return how many there are."""
        interrupted = self._many("SELECT * FROM jobs WHERE state = ?", JobState.RUNNING.value)
        for job in interrupted:
            self._change(job.id, "resumed", state=JobState.QUEUED, not_before=0.0)
        return len(interrupted)

    def take(self) -> Job | None:
        """Take the oldest job that may be begun; None if there is none."""
        job = self._one(
            "SELECT * FROM jobs WHERE state = ? AND not_before <= ? ORDER BY number LIMIT 1",
            JobState.QUEUED.value,
            time.time(),
        )
        if job is None:
            return None
        self._change(job.id, "started", state=JobState.RUNNING, started_at=job.started_at or time.time())
        return self.job(job.id)

    def note_attempt(self, name: str, attempt: Attempt) -> None:
        """Store a judged answer: progress, which forgets earlier faults."""
        speedup = attempt.verdict.speedup if attempt.verdict.correct else None
        with self._database:
            self._database.execute("BEGIN")
            self._database.execute(
                "UPDATE jobs SET judged = judged + 1, failures = 0, "
                "best_speedup = nullif(max(ifnull(best_speedup, -1), ifnull(?, -1)), -1) WHERE id = ?",
                (speedup, name),
            )
            self._event(name, "attempt", attempt=attempt)

    def retry(self, name: str, failures: int, not_before: float, message: str) -> None:
        """Queue a job again after a fault of the machine."""
        self._change(name, "retried", message, state=JobState.QUEUED, failures=failures, not_before=not_before)

    def finish(self, name: str, result: GeneratedKernel, cached: bool = False) -> None:
        """End a job with its result."""
        self._change(
            name, "finished", result.line, state=JobState.FINISHED, result=result.model_dump_json(),
            cached=int(cached), ended_at=time.time(),
        )  # fmt: skip

    def fail(self, name: str, message: str) -> None:
        """End a job without a result."""
        self._change(name, "failed", message, state=JobState.FAILED, error=message, ended_at=time.time())

    def cancel(self, name: str) -> None:
        """End a job that nobody wants any more."""
        self._change(name, "cancelled", state=JobState.CANCELLED, ended_at=time.time())

    def events(self, name: str, after: int = 0) -> list[JobEvent]:
        """Return the events of a job with higher numbers than `after`, in order."""
        rows = self._database.execute(
            "SELECT line FROM events WHERE job = ? AND number > ? ORDER BY number", (name, after)
        )
        return [JobEvent.model_validate_json(row["line"]) for row in rows]

    def attempts(self, name: str) -> list[Attempt]:
        """Return the judged answers of a job."""
        return [event.attempt for event in self.events(name) if event.attempt is not None]

    def cached(self, cache_key: str, request: KernelRequest) -> GeneratedKernel | None:
        """Return the newest result that answers a request: a kernel that is fast enough, or as much search."""
        for job in self._many(
            "SELECT * FROM jobs WHERE cache_key = ? AND state = ? AND cached = 0 ORDER BY number DESC LIMIT 20",
            cache_key,
            JobState.FINISHED.value,
        ):
            if job.result is not None and _answers(job.result, job.request, request):
                return job.result
        return None

    def _change(self, name: str, kind: str, message: str | None = None, **values: Any) -> None:
        """Change columns of a job and note it, both or neither."""
        columns = ", ".join(f"{column} = ?" for column in values)
        with self._database:
            self._database.execute("BEGIN")
            self._database.execute(f"UPDATE jobs SET {columns} WHERE id = ?", (*map(_stored, values.values()), name))
            self._event(name, kind, message)

    def _event(self, name: str, kind: Any, message: str | None = None, attempt: Attempt | None = None) -> None:
        query = "SELECT ifnull(max(number), 0) + 1 FROM events WHERE job = ?"
        (number,) = self._database.execute(query, (name,)).fetchone()
        event = JobEvent(number=number, kind=kind, at=round(time.time(), 3), attempt=attempt, message=message)
        line = event.model_dump_json(exclude_none=True)
        self._database.execute("INSERT INTO events (job, number, line) VALUES (?, ?, ?)", (name, number, line))

    def _one(self, query: str, *values: Any) -> Job | None:
        return next(iter(self._many(query, *values)), None)

    def _many(self, query: str, *values: Any) -> list[Job]:
        return [_job(row) for row in self._database.execute(query, values)]


def _stored(value: Any) -> Any:
    return value.value if isinstance(value, JobState) else value


def _job(row: sqlite3.Row) -> Job:
    values = dict(row)
    for name in ("request", "result"):
        values[name] = None if values[name] is None else json.loads(values[name])
    return Job.model_validate(values)


def _answers(result: GeneratedKernel, earlier: KernelRequest, request: KernelRequest) -> bool:
    if result.outcome is Outcome.IMPROVED:
        return (result.speedup or 0) >= request.min_speedup
    return result.judged >= request.budget and earlier.min_speedup <= request.min_speedup
