"""Which spans of a run a tracer has handed on in this process, and which of those were dropped."""

from __future__ import annotations

from collections import OrderedDict

_REMEMBERED = 4096  # runs


class Handover:
    """By run: the number of the next span to hand on, and the lowest one that was dropped.

    The next segment of a run in the same process must not send what still waits to be sent, and no
    cursor may pass a span that was dropped.
    """

    def __init__(self) -> None:
        self._next: OrderedDict[str, int] = OrderedDict()
        self._dropped: OrderedDict[str, int] = OrderedDict()

    def next_of(self, run_id: str) -> int:
        """The number of the next span; 0 where nothing was handed on."""
        return self._next.get(run_id, 0)

    def handed(self, run_id: str, first: int, upto: int) -> None:
        """The spans from `first` on, `upto` not among them, were handed on."""
        if self._dropped.get(run_id, upto) >= first:
            self._dropped.pop(run_id, None)  # it is on its way again
        _remember(self._next, run_id, upto)

    def dropped(self, run_id: str, number: int) -> None:
        """This span was dropped: it is the next one again."""
        lowest = min(number, self._dropped.get(run_id, number))
        _remember(self._dropped, run_id, lowest)
        self._next.pop(run_id, None)

    def complete(self, run_id: str, upto: int) -> int:
        """How many spans arrived without a gap, once all below `upto` were delivered or dropped."""
        return min(upto, self._dropped.get(run_id, upto))

    def clear(self) -> None:
        """In a forked child: what was handed on is the parent's to send."""
        self._next.clear()
        self._dropped.clear()


def _remember(numbers: OrderedDict[str, int], run_id: str, number: int) -> None:
    numbers[run_id] = number
    numbers.move_to_end(run_id)
    if len(numbers) > _REMEMBERED:
        numbers.popitem(last=False)
