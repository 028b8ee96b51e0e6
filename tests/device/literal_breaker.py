"""The breaker as its docstring tells it: a diary of all that happened, read from the start at every question."""

from dataclasses import dataclass, field


@dataclass(eq=False)
class Tried:
    """One attempt."""

    began: float
    probe: bool
    brief: bool = False
    ended: str | None = None
    hurried: bool = False  # it is released as it was brief, and timed out


@dataclass
class LiteralBreaker:
    """Keeps no count of anything: every answer is found in the diary."""

    failures: int
    interval_s: float
    diary: list[tuple[str, float, Tried | None]] = field(default_factory=list)

    def begin(self, now: float, brief: bool) -> Tried | None:
        self.give_up(now)
        if not self.allows(now):
            self.diary.append(("refused", now, None))
            return None
        tried = Tried(now, self.state != "closed", brief)
        self.diary.append(("began", now, tried))
        return tried

    def report(self, tried: Tried, outcome: str, now: float) -> None:
        self.give_up(now)
        if outcome == "timed_out":
            hurry = tried.brief and not tried.probe and now < self.hurried_since(now) + self.interval_s
            tried.hurried |= hurry and tried.ended is None
            outcome = "released" if hurry else "failed"
        if tried.ended is None:
            self.end(tried, outcome, now)
        else:
            self.diary.append(("late", now, tried))

    def end(self, tried: Tried, outcome: str, now: float) -> None:
        counts = not any(what in ("opened", "closed") for what in self.since(tried))
        tried.ended = outcome
        self.diary.append((outcome if counts else "stale", now, tried))
        if counts and outcome == "succeeded" and self.state != "closed":
            self.diary.append(("closed", now, None))
        if counts and self.state == "closed" and self.failed_in_a_row >= self.failures:
            self.diary.append(("opened", now, None))

    def give_up(self, now: float) -> None:
        for tried in self.attempts:
            if tried.ended is None and now >= tried.began + self.interval_s:
                self.end(tried, "unanswered", now)

    def hurried_since(self, now: float) -> float:
        """When an attempt first timed out that was brief, since the last success."""
        news = self.after("succeeded")
        hurried = [then for what, then, who in news if what == "released" and who is not None and who.hurried]
        return min(hurried, default=now)

    def allows(self, now: float) -> bool:
        if self.state == "closed":
            since = [tried for what, _, tried in self.after("succeeded") if what == "began" and tried is not None]
            return not self.failed_in_a_row or sum(tried.ended != "released" for tried in since) < self.failures
        made = [tried.began for tried in self.attempts if not (tried.probe and tried.ended == "released")]
        return self.state == "open" and now >= max(made) + self.interval_s

    def since(self, tried: Tried) -> list[str]:
        start = next(i for i, (what, _, who) in enumerate(self.diary) if what == "began" and who is tried)
        return [what for what, _, _ in self.diary[start:]]

    def after(self, event: str) -> list[tuple[str, float, Tried | None]]:
        """The diary from the last such event on."""
        last = max((i for i, (what, _, _) in enumerate(self.diary) if what == event), default=-1)
        return self.diary[last + 1 :]

    def count(self, *outcomes: str) -> int:
        return sum(tried.ended in outcomes for tried in self.attempts)

    @property
    def attempts(self) -> list[Tried]:
        return [tried for what, _, tried in self.diary if what == "began" and tried is not None]

    @property
    def failed_in_a_row(self) -> int:
        return sum(what in ("failed", "unanswered") for what, _, _ in self.after("succeeded"))

    @property
    def opened_at(self) -> float | None:
        turns = [(what, now) for what, now, _ in self.diary if what in ("opened", "closed")]
        return turns[-1][1] if turns and turns[-1][0] == "opened" else None

    @property
    def state(self) -> str:
        if self.opened_at is None:
            return "closed"
        return "probing" if any(tried.probe and tried.ended is None for tried in self.attempts) else "open"
