"""The samples of `stream.c`, decided by a twin."""

from hinge.embedded.twin import Twin

_WORD = 0xFFFFFFFF


def hashes(twin: Twin, samples: int) -> list[int]:
    """Return what `stream.c` prints: a hash of the decisions, and one of all that was learned besides."""
    found, draw, bins = 2166136261, 2463534242, len(twin.state[1])
    waiting = bins  # the bin whose feedback is late; `bins`: there is none
    agreed = False
    for sample in range(1, samples + 1):
        draw ^= (draw << 13) & _WORD
        draw ^= draw >> 17
        draw ^= (draw << 5) & _WORD
        bin = (((draw | draw >> 8) & 0xFF) * bins) >> 8
        offload = twin.decide(bin)
        found = mixed(found, offload)
        if not draw >> 8 & 7 and waiting < bins:
            twin.learn(waiting, agreed)
            waiting = bins
        if offload and waiting < bins:
            twin.learn(bin, agrees(draw, bin, bins, sample))
        elif offload:
            waiting, agreed = bin, agrees(draw, bin, bins, sample)
    sums, rows = twin.state
    after = found
    for value in (*sums, *(value for row in rows for value in row)):
        after = mixed(after, value)
    return [found, after]


def agrees(draw: int, bin: int, bins: int, sample: int) -> bool:
    """Return whether local agrees with remote: more often with the bin, and half as often for 4096 samples of 8192."""
    return (draw >> 16) * bins < (bin + 1) << (16 - (sample >> 12 & 1))


def mixed(found: int, value: int) -> int:
    """Return the hash after one step of FNV-1a, by words."""
    return ((found ^ value) * 16777619) & _WORD
