"""Which spans of a run a tracer has handed on in this process, and which of those were dropped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

_REMEMBERED = 4096  # runs


class Handover:
    """By run: the number of the next span to hand on, and the lowest one that was dropped.

    A run is its id, when it began, and its cursor's file.

    The next segment of a run in the same process must not send what still waits to be sent, and no
    cursor may pass a span that was dropped.
    """

    def __init__(self) -> None:
        self._next: OrderedDict[Hashable, int] = OrderedDict()
        self._dropped: OrderedDict[Hashable, int] = OrderedDict()

    def next_of(self, run: Hashable) -> int:
        """The number of the next span; 0 where nothing was handed on."""
        return self._next.get(run, 0)

    def handed(self, run: Hashable, first: int, upto: int) -> None:
        """The spans from `first` on, `upto` not among them, were handed on."""
        if self._dropped.get(run, upto) >= first:
            self._dropped.pop(run, None)  # it is on its way again
        _remember(self._next, run, upto)

    def dropped(self, run: Hashable, number: int) -> None:
        """This span was dropped: it is the next one again."""
        lowest = min(number, self._dropped.get(run, number))
        _remember(self._dropped, run, lowest)
        self._next.pop(run, None)

    def complete(self, run: Hashable, upto: int) -> int:
        """How many spans arrived without a gap, once all below `upto` were delivered or dropped."""
        return min(upto, self._dropped.get(run, upto))

    def clear(self) -> None:
        """In a forked child: what was handed on is the parent's to send."""
        self._next.clear()
        self._dropped.clear()


def _remember(numbers: OrderedDict[Hashable, int], run: Hashable, number: int) -> None:
    numbers[run] = number
    numbers.move_to_end(run)
    if len(numbers) > _REMEMBERED:
        numbers.popitem(last=False)
