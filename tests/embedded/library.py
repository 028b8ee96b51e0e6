"""The C library, built for this machine and called from Python."""

import ctypes
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hinge.embedded.twin import SentinelTwin, Twin
from tools.boards.streams import modes_of
from tools.boards.targets import HERE, HOST, defines

SOURCE = HERE / "library.c"


@cache
def _built(*flags: str) -> ctypes.CDLL:
    """The library with these flags: built once, as it has no state of its own, and kept as long as it is loaded."""
    with TemporaryDirectory() as folder:
        HOST.compile(SOURCE, Path(folder, "library.o"), ("-O2", "-fPIC", *flags))
        HOST.link_shared(Path(folder, "library.o"), Path(folder, "library.so"))
        return ctypes.CDLL(str(Path(folder, "library.so")))


class Sealed:
    """A state, and what `hinge.h` says of it."""

    _calls: ctypes.CDLL
    state: Any

    def seal(self) -> int:
        """Call `hinge_seal`."""
        self._calls.seal.restype = ctypes.c_uint32
        return int(self._calls.seal(ctypes.byref(self.state)))

    def is_sound(self, saved: bytes, seal: int) -> bool:
        """Read back what was saved, and call `hinge_is_sound`."""
        self._calls.is_sound.restype = ctypes.c_uint8
        read = type(self.state).from_buffer_copy(saved)
        return bool(self._calls.is_sound(ctypes.byref(read), ctypes.c_uint32(seal)))


class Library(Sealed):
    """`hinge.h` with a twin's constants, and a state of its own."""

    def __init__(self, twin: Twin) -> None:
        self._calls = _built(*defines(twin.constants, *modes_of(twin)))
        self._calls.decide.restype = self._calls.bin_from_int8.restype = ctypes.c_uint8
        sums, bin_fields = _sentinel_fields(twin.bins) if isinstance(twin, SentinelTwin) else _fixed_fields(twin)
        bin_type: Any = type("Bin", (ctypes.Structure,), {"_fields_": bin_fields})
        fields: list[Any] = [("time", ctypes.c_uint32), *sums, ("bins", bin_type * twin.bins)]
        self.state: Any = type("State", (ctypes.Structure,), {"_fields_": fields})()

    def decide(self, bin: int) -> bool:
        """Call `hinge_decide`."""
        return bool(self._calls.decide(ctypes.byref(self.state), ctypes.c_uint8(bin)))

    def learn(self, bin: int, agreed: bool, cost: int = 0) -> None:
        """Call `hinge_learn`."""
        arguments = ctypes.c_uint8(bin), ctypes.c_uint8(agreed), ctypes.c_uint16(cost)
        self._calls.learn(ctypes.byref(self.state), *arguments)

    def bin_from_int8(self, confidence: int) -> int:
        """Call `hinge_bin_from_int8`."""
        return int(self._calls.bin_from_int8(ctypes.c_int8(confidence)))

    def column(self, field: str) -> list[int]:
        """A field of every bin."""
        return [getattr(each, field) for each in self.state.bins]


Fields = list[tuple[str, Any]]


def _fixed_fields(twin: Any) -> tuple[Fields, Fields]:
    """What HI-LCB and HI-LCB-lite keep beside the time, and for each bin."""
    words: Fields = [("offloads", ctypes.c_uint16), ("agreements", ctypes.c_uint16)]
    has_own = twin.table.monotone and twin.offload_cost is not None
    own: Fields = [("own", ctypes.c_uint32)] if has_own else []
    sums: Fields = [("costs", ctypes.c_uint32), ("offloads", ctypes.c_uint16)] if twin.offload_cost is None else []
    return sums, [("expiry", ctypes.c_uint32), *words, *own]


def _sentinel_fields(bins: int) -> tuple[Fields, Fields]:
    """What Sentinel keeps."""
    wholes = (
        *("left", "granted", "arrivals", "offloads", "agreements", "recent_offloads", "recent_agreements"),
        *("weight", "total", "support", *(["cut"] if bins >= 32 else [])),
    )
    bin_fields: Fields = [(name, ctypes.c_uint32) for name in wholes]
    bin_fields += [(name, ctypes.c_double) for name in ("evidence", "suspicion", "rising")]
    bin_fields += [("below", ctypes.c_uint8), ("audited", ctypes.c_uint8)]
    sums: Fields = [("since", ctypes.c_uint32), *((name, ctypes.c_double) for name in ("audits", "offloads", "misfit"))]
    return sums + ([("alarms", ctypes.c_uint32)] if bins > 16 else []), bin_fields
