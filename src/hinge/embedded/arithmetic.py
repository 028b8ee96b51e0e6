"""The arithmetic of `hinge.h` in whole numbers, step for step: fractions are in units of 2^-32."""

LATEST = 2**32 - 1  # the latest expiry

# 2^x - 1 = x (c1 + x (c2 + …)) for x in [0, 1), within 1.2e-7 of 2^x: the coefficients, last first.
TERMS = (0x007A5D40, 0x024EF0A6, 0x0E48E735, 0x3D7B6ADA, 0xB1725D47)


def high(x: int, y: int) -> int:
    """The upper half of a product of 32-bit numbers, or up to 2 less.

    >>> high(2**31, 6), high(2**16 + 1, 2**16 - 1)
    (3, 0)
    """
    x_high, y_high = x >> 16, y >> 16
    return x_high * y_high + ((x_high * (y & 0xFFFF)) >> 16) + (((x & 0xFFFF) * y_high) >> 16)


def power_above(whole: int, fraction: int) -> int:
    """The first whole number above 2^(whole + fraction), for whole < 32 and a fraction in units of 2^-32.

    >>> power_above(0, 0), power_above(3, 0), power_above(3, 2**31)
    (2, 9, 12)
    """
    power = 0
    for term in TERMS:
        power = high(power + term, fraction)
    return ((0x80000000 | (power >> 1)) >> (31 - whole)) + 1


def share_of(part: int, all: int) -> int:
    """part / all by long division, for part ≤ all < 2^31; 1 itself becomes the largest number below it.

    >>> share_of(1, 2) == 2**31, share_of(3, 3) == 2**32 - 1
    (True, True)
    """
    share = 0
    for _ in range(32):
        part <<= 1
        share <<= 1
        if part >= all:
            part -= all
            share += 1
    return share


def root_of(square: int) -> int:
    """The square root of a fraction, in units of 2^-16.

    >>> root_of(2**30) == 2**15, root_of(2**32 - 1)
    (True, 65535)
    """
    root, bit = 0, 1 << 30
    while bit > 0:
        above = root + bit
        root >>= 1
        if square >= above:
            square -= above
            root += bit
        bit >>= 2
    return root


def licence(surplus: int, offloads: int, rate: int, shift: int) -> int:
    """The first time after exp(n s² / α), for a surplus s > 0 of a bin with n offloads."""
    evidence = high(high(surplus, rate), surplus) * offloads
    whole = evidence >> (32 - shift)
    if whole > 31:
        return LATEST
    return power_above(whole, (evidence << shift) & 0xFFFFFFFF)
