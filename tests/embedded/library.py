"""The C library, built for this machine and called from Python."""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hinge.embedded.twin import ProbationTwin, Record, Twin
from tools.boards.targets import HERE, HOST, defines

SOURCE = HERE / "library.c"


@cache
def _built(*flags: str) -> ctypes.CDLL:
    """Return the library with these flags: built once, as it has no state of its own."""
    with TemporaryDirectory() as folder:
        HOST.compile(SOURCE, Path(folder, "library.o"), ("-O2", "-fPIC", *flags))
        HOST.link_shared(Path(folder, "library.o"), Path(folder, "library.so"))
        return ctypes.CDLL(str(Path(folder, "library.so")))


class Library:
    """`hinge.h` with a twin's constants, and a state of its own that begins as the twin's."""

    def __init__(self, twin: Twin, edges: Sequence[int] = ()) -> None:
        cut = {"EDGES": f"{{{','.join(map(str, edges))}}}"} if edges else {}
        self._calls = _built(*defines({**twin.settings, **cut}))
        self._calls.seal.restype = ctypes.c_uint32
        for call in ("decide", "bin_of", "bin_from_int8", "is_sound"):
            getattr(self._calls, call).restype = ctypes.c_uint8
        if isinstance(twin, ProbationTwin):
            sums, names = ["time", "learned", "fallen", "misled"], list(Record._fields)
        else:
            sums, names = ["time"], ["expiry", "offloads", "agreements", *(["own"] if twin.monotone else [])]
        short = ("offloads", "agreements", "foretold")
        words = [(name, ctypes.c_uint16 if name in short else ctypes.c_uint32) for name in names]
        bin_type: Any = type("Bin", (ctypes.Structure,), {"_fields_": words})
        fields = [*((name, ctypes.c_uint32) for name in sums), ("bins", bin_type * len(twin.state[1]))]
        first, rows = twin.state
        self._sums, self._names = sums, names
        self.state: Any = type("State", (ctypes.Structure,), {"_fields_": fields})(*first)
        for bin, row in enumerate(rows):
            self.state.bins[bin] = bin_type(*row)

    def decide(self, bin: int) -> bool:
        """Call `hinge_decide`."""
        return bool(self._calls.decide(ctypes.byref(self.state), ctypes.c_uint8(bin)))

    def learn(self, bin: int, agreed: bool) -> None:
        """Call `hinge_learn`."""
        self._calls.learn(ctypes.byref(self.state), ctypes.c_uint8(bin), ctypes.c_uint8(agreed))

    def bin(self, confidence: int) -> int:
        """Call `hinge_bin`."""
        return int(self._calls.bin_of(ctypes.c_uint32(confidence)))

    def bin_from_int8(self, confidence: int) -> int:
        """Call `hinge_bin_from_int8`."""
        return int(self._calls.bin_from_int8(ctypes.c_int8(confidence)))

    def seal(self) -> int:
        """Call `hinge_seal`."""
        return int(self._calls.seal(ctypes.byref(self.state)))

    def is_sound(self, saved: bytes, seal: int) -> bool:
        """Read back what was saved, and call `hinge_is_sound`."""
        read = type(self.state).from_buffer_copy(saved)
        return bool(self._calls.is_sound(ctypes.byref(read), ctypes.c_uint32(seal)))

    def known(self) -> tuple[list[int], list[list[int]]]:
        """Return all that the state holds, as a twin's `state` has it."""
        sums = [getattr(self.state, name) for name in self._sums]
        return sums, [[getattr(each, name) for name in self._names] for each in self.state.bins]


def known(twin: Twin) -> tuple[list[int], list[list[int]]]:
    """Return all that a twin's state holds."""
    sums, rows = twin.state
    return list(sums), [list(row) for row in rows]
