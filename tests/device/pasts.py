"""What a rollback should give, worked out from what a policy knew, without any files."""

from dataclasses import dataclass, field

Origins = list[tuple[int, str]]  # generations and why another began from them, newest first


def with_one_more(past: Origins, generation: int, why: str) -> Origins:
    longer = [(generation, why), *(each for each in past if each[0] != generation)]
    return [each for each in longer if each in [other for other in longer if other[1] == each[1]][:3]]


@dataclass
class Pasts:
    """The generations that are kept, what each of them knew at its end, and what each can be rolled back to."""

    present: int
    ends: dict[int, str] = field(default_factory=dict)
    pasts: dict[int, Origins] = field(default_factory=dict)
    aside: int | None = None  # what the last rollback left

    def begin(self, generation: int, end: str, why: str) -> None:
        """A generation begins from the present one, which ended knowing this."""
        past = with_one_more(self.pasts.get(self.present, []), self.present, why)
        self.keep(generation, past, {**self.ends, self.present: end})

    def keep(self, generation: int, past: Origins, ends: dict[int, str]) -> None:
        kept = {self.aside, *dict(past)}
        self.ends = {each: known for each, known in ends.items() if each in kept}
        self.pasts = {each: origins for each, origins in self.pasts.items() if each in kept}
        self.pasts[generation], self.present = past, generation

    def earlier(self, now: str) -> int | None:
        """The generation that a rollback goes back to; None: there is none."""
        candidates = [each for each, _ in self.pasts.get(self.present, []) if each in self.ends]
        return next((each for each in candidates if self.ends[each] != now), None)

    def go_back(self, generation: int, new: int, left: int, end: str) -> None:
        """A new generation begins from an earlier one; the one that is left is set aside."""
        self.aside = left
        past = with_one_more(self.pasts.get(generation, []), generation, "start")
        self.pasts.setdefault(left, self.pasts.get(self.present, []))
        self.keep(new, past, {**self.ends, left: end})
