"""Cells and the bins that are formed of them, so that nobody has to choose bins.

**In a paragraph.** Confidences are counted in 512 fixed cells, uniform in log-odds: fine near 0 and 1, where networks
crowd, and never in need of a change. A cell counts samples, offloads and agreements. A policy sees at most 16 bins,
which are groups of neighbouring cells of about equal weight. The weight of a cell is how many samples came there,
sixteenfold if its bin is next to break-even: if the records of its bin and of a neighbour stand on different sides.
After 64, 128, …, 4096 samples, and then after each 4096, the groups are formed anew. The records of the new bins are
sums over their cells, so that nothing learned is lost or invented.

Plain functions on a table, which numba compiles.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from hinge._columns import Reals, Wholes, quick_column, real_column, whole_column
from hinge.errors import InvalidState

CELLS, SPAN = 512, 24.0  # cells of log-odds from -SPAN to SPAN, in bits: all that a 32-bit number near 1 can tell
NEAR = 16.0  # the weight of a sample next to break-even
FIRST, EVERY = 64, 4096  # samples before the first groups, and at most between two
DUE, FORMED = 0, 1  # the entries of `due`
CELL_EDGES = [1.0 / (1.0 + 2.0 ** (SPAN - 2.0 * SPAN * cell / CELLS)) for cell in range(1, CELLS)]


class CellTable(NamedTuple):
    """What is counted by cell, the bin of each cell, and room for sums by bin."""

    samples: Reals
    offloads: Reals
    agreements: Reals
    group: Wholes  # the bin of each cell, rising
    before: Wholes  # the same before the bins were formed anew
    due: Wholes  # the time from which they are formed anew; how often they were
    held: Reals  # samples by bin
    rest: Reals
    whole: Reals


def count_samples(cells: CellTable, held: Reals) -> None:
    """Set the samples of bins to the sums of their cells'."""
    for bin in range(len(held)):
        held[bin] = 0.0
    for cell in range(len(cells.group)):
        held[cells.group[cell]] += cells.samples[cell]


def write_record(cells: CellTable, cell: int, agreed: float, outcome: int) -> None:
    """Count an offload, and forget what its policy has dropped: 1 of its bin, 2 of all bins."""
    if outcome > 0:
        for each in range(len(cells.group)):
            if outcome > 1 or cells.group[each] == cells.group[cell]:
                cells.samples[each] = cells.offloads[each] = cells.agreements[each] = 0.0
        cells.samples[cell] = 1.0
    cells.offloads[cell] += 1.0
    cells.agreements[cell] += agreed


def is_near(table: Any, bin: int, q: float) -> bool:
    """Return whether the record of a bin and that of a neighbour stand on different sides of break-even."""
    good = table.agreements[bin] >= q * table.offloads[bin]
    for other in (bin - 1, bin + 1):
        if 0 <= other < len(table.offloads) and (table.agreements[other] >= q * table.offloads[other]) != good:
            return True
    return False


def form_bins(cells: CellTable, table: Any, q: float, time: int) -> None:
    """Form the bins anew; the policy whose table this is has to take them over."""
    bins = len(table.offloads)
    count_samples(cells, cells.held)
    total = 0.0
    for bin in range(bins):
        cells.rest[bin] = NEAR if is_near(table, bin, q) else 1.0
        total += cells.rest[bin] * cells.held[bin]
    below, last, place = 0.0, -1, -1
    for cell in range(len(cells.group)):
        cells.before[cell] = cells.group[cell]
        weight = cells.samples[cell] * cells.rest[cells.group[cell]]
        part = min(int((below + weight / 2.0) / total * bins), bins - 1) if total > 0.0 else 0
        if part != last:  # a crowded cell may leave parts empty
            last = part
            place += 1
        cells.group[cell] = place
        below += weight
    cells.due[DUE] = time + max(FIRST, min(time, EVERY))
    cells.due[FORMED] += 1


def make_cells(bins: int) -> CellTable:
    """Return empty cells, grouped into bins of equal width."""
    cells = CellTable(
        samples=real_column(CELLS),
        offloads=real_column(CELLS),
        agreements=real_column(CELLS),
        group=quick_column(CELLS),
        before=whole_column(CELLS),
        due=whole_column(2),
        held=real_column(bins),
        rest=real_column(bins),
        whole=real_column(bins),
    )
    for cell in range(1, CELLS):
        cells.group[cell] = min(int(CELL_EDGES[cell - 1] * bins), bins - 1)
    cells.due[DUE] = FIRST
    return cells


def first_cells(cells: CellTable) -> list[int]:
    """Return the first cell of each bin but the lowest."""
    return [cell for cell in range(1, CELLS) if cells.group[cell] != cells.group[cell - 1]]


def cells_state(cells: CellTable) -> dict[str, Any]:
    """Return what is counted, of cells in use, and how they are grouped.

    >>> cells = make_cells(16)
    >>> cells.samples[300] = 2
    >>> cells_state(cells)["used"]
    [[300, 2.0, 0.0, 0.0]]
    """
    counted = zip(cells.samples, cells.offloads, cells.agreements, strict=True)
    return {
        "used": [[cell, *counts] for cell, counts in enumerate(counted) if any(counts)],
        "bins": [[cell, cells.group[cell]] for cell in first_cells(cells)],
        "due": list(cells.due),
    }


def checked_rows(rows: object) -> list[list[Any]]:
    """Return rows of cells and their counts; raises `InvalidState` for what nothing can have counted."""
    wrong = InvalidState(f"FittedBins: state has impossible counts of cells: {rows!r:.200}")
    if not isinstance(rows, list):
        raise wrong
    for row in rows:
        if not (isinstance(row, list) and len(row) == 4 and type(row[0]) is int and 0 <= row[0] < CELLS):
            raise wrong
        if not all(type(count) in (int, float) and 0 <= count < 2.0**53 for count in row) or row[3] > row[2] + 1e-6:
            raise wrong
    return rows


def restore_cells(cells: CellTable, state: Mapping[str, Any]) -> None:
    """Set empty cells as a state says; raises `InvalidState` for one that nothing can have counted."""
    groups, due = state.get("bins"), state.get("due")
    wrong = InvalidState(f"FittedBins: state has impossible cells: {state!r:.200}")
    if not (isinstance(groups, list) and isinstance(due, list)) or set(state) != {*_PARTS}:
        raise wrong
    bins = len(cells.held)
    for cell, samples, offloads, agreements in checked_rows(state.get("used")):
        cells.samples[cell], cells.offloads[cell], cells.agreements[cell] = samples, offloads, agreements
    starts = [(0, 0)]
    for entry in groups:
        if not (isinstance(entry, list) and len(entry) == 2 and all(type(number) is int for number in entry)):
            raise wrong
        if not (starts[-1][0] < entry[0] < CELLS and starts[-1][1] < entry[1] < bins):
            raise wrong
        starts.append((entry[0], entry[1]))
    for (start, bin), (end, _) in zip(starts, [*starts[1:], (CELLS, 0)], strict=True):
        for cell in range(start, end):
            cells.group[cell] = bin
    if len(due) != 2 or not all(type(number) is int and 0 <= number < 2**53 for number in due):
        raise wrong
    for place, number in enumerate(due):
        cells.due[place] = number


_PARTS = ("used", "bins", "due")
