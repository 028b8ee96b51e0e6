"""Messages with tables, for the C of thin devices: good ones, older ones and damaged ones."""

import random

from hinge.fleet.messages import Table, build_table


def messages(bins: int, count: int, seed: int = 6) -> list[bytes]:
    """Licences of all lengths, often none; some messages are repeated, out of order, cut or have a wrong bit."""
    chance = random.Random(seed)
    return [_damaged(_table(bins, number, chance), chance) for number in range(1, count + 1)]


def _table(bins: int, number: int, chance: random.Random) -> bytes:
    licences = (chance.choice((0, 1, 2, int(2 ** chance.uniform(0, 8)), 2**16 - 1)) for _ in range(bins))
    return build_table(Table(max(0, number - chance.choice((0, 0, 0, 0, 1, 5))), tuple(licences)))


def _damaged(message: bytes, chance: random.Random) -> bytes:
    how = chance.randrange(20)
    if how == 0:
        return message[: chance.randrange(len(message))]
    if how == 1:
        return message + b"\0"
    if how == 2:
        at = chance.randrange(8 * len(message))
        return bytes(byte ^ (1 << at % 8 if place == at // 8 else 0) for place, byte in enumerate(message))
    if how == 3:  # whole, but of another number of bins
        return build_table(Table(2**32 - 1, (1,) * (len(message) // 4)))
    return message
