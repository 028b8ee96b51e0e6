"""Never badly wrong with many bins: the rows of `changes` with 32, 64 and 128 uniform bins.

What Sentinel does with more than 16 bins was chosen on the traces that chose its constants, on bins that all agree
alike, just below break-even or just above, and by what it costs in short logs, also of the pairs of speech and reading.
The other traces of images are held out; the row of bins 0.02 below break-even is not.
"""

from benchmarks.regrets.changes import CHOSEN_ON, COSTS, DEFAULT, HELD_OUT, HORIZON, table

RUNS = 18
POLICIES = (DEFAULT, "isotonic", "discounted-isotonic", "kl", "thompson")
TABLES = ((64, CHOSEN_ON), (32, HELD_OUT), (64, HELD_OUT), (128, HELD_OUT))


def report(quick: bool) -> list[str]:
    runs = 4 if quick else RUNS
    lines = [
        "## Never badly wrong, with many bins",
        "",
        f"As [with 16 bins](regret-changes.md): mean and 99th percentile of about {runs} runs of {HORIZON} samples,",
        f"spread alike over traces and the costs {COSTS}. What is said of one bin there is said of a sixteenth of the",
        "bins here; fewer runs of a million samples, and more of 1 000 and fewer. Ratios are of regret + 1.",
        "",
    ]
    for bins, traces in TABLES:
        kind = "held out" if traces == HELD_OUT else "on which it was chosen"
        lines += [f"### {bins} bins, traces {kind}: {', '.join(traces)}", ""]
        lines += table(traces, traces == HELD_OUT, runs, bins, POLICIES)
    return lines
