"""Tracing process: streams of the virtual GPU, and whether host code has put their work in an order.

All work of a call runs in the order of the program here. On a GPU work of another stream than the default one runs at
any time, unless host code orders it: after the inputs have arrived (the stream waits for the default one), and before
the results are read (the default stream, or the host, waits for it).
"""

from collections.abc import Set
from dataclasses import dataclass, field

from kernels_eval.trace.schema import FIRST_OWN, FIRST_WEIGHT

Times = dict[int, int]
"""By a stream's number, how much of its work comes before something."""
DEFAULT = 0
_DEPENDENT = -1


@dataclass
class Streams:
    """The order of the work of one candidate's streams, by their numbers."""

    unordered: str | None = None
    """Message on what is not in order in this call, or None."""
    current: int = DEFAULT
    _done: Times = field(default_factory=lambda: {DEFAULT: 0})
    """Work given to each stream so far."""
    _before: dict[int, Times] = field(default_factory=lambda: {DEFAULT: {}})
    """Work that comes before the next work of each stream."""
    _host: Times = field(default_factory=dict[int, int])
    """Work that the host has waited for."""
    _made: dict[int, int] = field(default_factory=dict[int, int])
    """Of storages that this call has made: the stream, or `_DEPENDENT` for those that depend on the inputs."""
    _asked: Times = field(default_factory=dict[int, int])
    """Work of which the host has asked whether it is done."""
    _arrived: int = 0
    """Work of the default stream until the inputs of this call have arrived."""

    def make(self) -> int:
        """Return the number of a new stream."""
        number = len(self._done)
        self._done[number], self._before[number] = 0, {}
        return number

    def begin_call(self) -> None:
        """Begin a call: its inputs arrive on the default stream."""
        self.unordered, self.current, self._made = None, DEFAULT, {}
        self._done[DEFAULT] += 1
        self._arrived = self._done[DEFAULT]

    def work(self, taken: Set[int], made: Set[int]) -> None:
        """Note one launch or operation on the current stream, by the storages that it takes and makes."""
        self._done[self.current] += 1
        is_free = all(
            number >= FIRST_WEIGHT and self._made.get(number, self.current) == self.current for number in taken
        )
        if is_free:
            self._made |= dict.fromkeys(made - taken, self.current)
            return
        self._made |= {number: _DEPENDENT for number in made | taken if number >= FIRST_OWN}
        if self.current != DEFAULT and self._known(self.current).get(DEFAULT, 0) < self._arrived:
            self.unordered = (
                "a stream works on inputs that it did not wait for: s.wait_stream(torch.cuda.current_stream())"
            )

    def end_call(self) -> None:
        """Note that results are read: on the default stream, as everything that comes after the call."""
        known = self._known(DEFAULT)
        if any(known.get(number, 0) < done for number, done in self._done.items() if number != DEFAULT):
            self.unordered = self.unordered or (
                "forward returns before the default stream waits for another one: "
                "torch.cuda.current_stream().wait_stream(s)"
            )

    def times(self, number: int) -> Times:
        """Return what has come once all work is done that a stream has now: what an event records."""
        return {**self._known(number), number: self._done[number]}

    def wait(self, number: int, times: Times) -> None:
        """Have a stream wait."""
        _merge(self._before[number], times)

    def wait_on_host(self, times: Times) -> None:
        """Have the host wait."""
        _merge(self._host, times)

    def wait_for_all(self) -> None:
        """Have the host wait for the device."""
        _merge(self._host, self._done)

    def is_done(self, times: Times) -> bool:
        """Return whether work is done, as the host asks: from the second question on, or once it has waited."""
        is_asked = _covers(self._asked, times)
        if is_asked:
            self.wait_on_host(times)
        _merge(self._asked, times)
        return is_asked or _covers(self._host, times)

    def _known(self, number: int) -> Times:
        known = dict(self._before[number])
        _merge(known, self._host)
        return known


def _covers(known: Times, times: Times) -> bool:
    return all(known.get(number, 0) >= done for number, done in times.items())


def _merge(known: Times, times: Times) -> None:
    for number, done in times.items():
        known[number] = max(done, known.get(number, 0))
