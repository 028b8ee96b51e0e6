"""What a rollback should give, worked out from the states that a policy was in, without any files."""

from dataclasses import dataclass, field

Origins = list[tuple[int, str]]  # generations and why another began from them, newest first


def with_one_more(past: Origins, generation: int, why: str | None) -> Origins:
    if why is None or generation in dict(past):
        return past
    longer = [(generation, why), *past]
    return [each for each in longer if each in [other for other in longer if other[1] == each[1]][:3]]


@dataclass
class Pasts:
    """The generations that are kept, how each of them ended, and what each can be rolled back to."""

    present: int
    ends: dict[int, str] = field(default_factory=dict)
    pasts: dict[int, Origins] = field(default_factory=dict)

    def begin(self, generation: int, end: str, why: str | None) -> None:
        """A generation begins from the present one, which ended in this state."""
        past = with_one_more(self.pasts.get(self.present, []), self.present, why)
        kept = {self.present, *dict(past)}
        self.ends = {each: state for each, state in {**self.ends, self.present: end}.items() if each in kept}
        self.pasts = {each: origins for each, origins in self.pasts.items() if each in kept}
        self.pasts[generation], self.present = past, generation

    def earlier(self, now: str) -> int | None:
        """The generation that a rollback goes back to; None: there is none."""
        marked = [each for each, _ in self.pasts.get(self.present, []) if each in self.ends]
        candidates = marked or sorted(self.ends, reverse=True)[:1]
        return next((each for each in candidates if self.ends[each] != now), None)

    def go_back(self, generation: int, new: int) -> None:
        """What came after a generation is gone, and a new one begins from it."""
        self.ends = {each: state for each, state in self.ends.items() if each <= generation}
        self.present = generation
        self.begin(new, self.ends[generation], "start")
