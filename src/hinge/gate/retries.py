"""A budget for retries, so that they never add much to the load of a remote that is failing.

A token bucket, filled by attempts and not by time: every first attempt pays `share` of a token in, every retry takes
one out, and the bucket holds `reserve` tokens, with which it starts. Hence in any stretch of time

    retries <= share × first attempts + reserve

and what was saved up longer ago than the last `reserve / share` attempts (50, with the defaults) counts for nothing.
"""

from threading import Lock

from hinge.arguments import real, whole

_TOKEN = 1_000_000  # tokens are counted in millionths: ten times 0.1 is less than 1 in floats


class RetryBudget:
    """Says whether a failed attempt may be made again. Threads may share it.

    `share`: of the first attempts, in millionths at the finest. `reserve`: retries at hand when few attempts were made;
    0 means none at all, ever. A retry needs the breaker's leave as any attempt does.

    >>> budget = RetryBudget(share=0.1, reserve=2)
    >>> [budget.retry() for _ in range(3)]
    [True, True, False]
    >>> for _ in range(10):
    ...     budget.attempted()
    >>> budget.retry(), budget.retry()
    (True, False)
    """

    def __init__(self, share: float = 0.1, reserve: int = 5) -> None:
        self.share = real("RetryBudget", "share", share, 0, 1)
        self.reserve = whole("RetryBudget", "reserve", reserve, 0)
        self._lock = Lock()
        self._pays = round(self.share * _TOKEN)
        self._holds = self._level = self.reserve * _TOKEN

    def attempted(self) -> None:
        """A first attempt is made. Retries are not reported here: they would earn further ones."""
        with self._lock:
            self._level = min(self._level + self._pays, self._holds)

    def retry(self) -> bool:
        """Whether one retry may be made; if so, it is paid for."""
        with self._lock:
            if self._level < _TOKEN:
                return False
            self._level -= _TOKEN
            return True

    @property
    def left(self) -> int:
        """How many retries could be made at once."""
        return self._level // _TOKEN
