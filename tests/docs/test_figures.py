"""The figures on the pages are those that the benchmarks printed, and the names those that the programs have."""

import json
import re
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]  # its types are a package of their own
from prometheus_client import CollectorRegistry

from hinge import Device, Isotonic, trade
from hinge.device.metrics import DeviceCollector
from hinge.policies import policy_names
from hinge.server.live import Reports
from hinge.server.observability import Metrics
from hinge.traces import load_trace, trace_names

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


def rows(text: str) -> dict[str, list[str]]:
    """The rows of a table, by their first cell."""
    lines = (line.strip("|").split("|") for line in text.splitlines() if "|" in line)
    return {first.strip(" `"): [cell.strip() for cell in rest] for first, *rest in lines}


def section(page: str, heading: str) -> dict[str, list[str]]:
    return rows((RESULTS / page).read_text("utf-8").partition(f" {heading}\n")[2].partition("\n#")[0])


def _table(page: str, heading: str) -> str:
    """The first table below a paragraph that begins so."""
    below = (RESULTS / page).read_text("utf-8").partition(heading)[2]
    return below[below.index("\n|") :].partition("\n\n")[0]


CHOOSE = {
    name: cells
    for name, cells in rows((ROOT / "docs" / "choose.md").read_text("utf-8")).items()
    if name in policy_names()
}


COSTS = ("0.1", "0.2", "0.3", "0.5")
PAIRS = re.findall(r"^### ([\w-]+)$", (RESULTS / "regret-pairs.md").read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("name", CHOOSE)
def test_the_regrets_are_those_measured(name: str) -> None:
    drift = section("regret-drift.md", "Agreement falls")
    for shown, measured, reference in zip(CHOOSE[name][:2], drift[name], drift["hi-lcb"], strict=False):
        regret, base = (int(cell.partition(" ")[0]) for cell in (measured, reference))
        assert shown.replace("\u00a0", " ") == f"{regret} ({regret / base:.2f} ×)"


@pytest.mark.parametrize("name", CHOOSE)
def test_the_times_and_sizes_are_those_measured(name: str) -> None:
    accept, offload = section("decide.md", "An accepted sample"), section("decide.md", "An offload in a realistic mix")
    measured = [accept[name][0], offload[name][0], accept[name][7]] if name in accept else ["–"] * 3
    assert CHOOSE[name][2:5] == measured


def test_what_changes_cost_is_what_was_measured() -> None:
    page = (ROOT / "docs" / "choose.md").read_text("utf-8")
    table = page.partition("| what happens |")[2].partition("\n\n")[0]
    names = re.findall(r"`([\w-]+)`", table.splitlines()[0])
    text = (RESULTS / "regret-changes.md").read_text("utf-8").partition("### Traces held out")[2]
    columns, *measured = rows(text).items()
    places = [columns[1].index(name) for name in names]
    there = [[cells[place] for place in places] for _, cells in measured]
    shown = [[cell.strip() for cell in line.split("|")[2:-1]] for line in table.splitlines()[2:]]
    assert len(shown) == 8
    assert [row for row in shown if row not in there] == []
    best, *others = sorted(map(float, rows(text)["**geometric mean of ratios**"]))
    assert f"its regret is {best:.2f} ×" in _words("README.md")
    assert f"the next best policy's {others[0]:.2f} ×" in _words("README.md")


def test_intervals_hold_as_often_and_are_as_wide_as_the_page_of_logs_says() -> None:
    page, text = _words("docs/own-log.md"), (RESULTS / "regret-logs.md").read_text("utf-8")
    cells = re.findall(r"^\| ([\w-]+) \| (0\.\d) \| (\d+) \|.*\) \| [\d.]+ \| ([\d.]+) \|", text, re.MULTILINE)
    traces, fewest = {name for name, *_ in cells}, min(int(logs) for _, _, logs, _ in cells)
    assert traces == {*trace_names()}
    assert f"each of the {len(traces)} shipped traces with {fewest} logs" in page
    held = re.search(r"met \(least ([\d.]+ %)", text)
    assert held
    assert f"it held in {held[1]} at least" in page
    widths = [[float(width) for _, at, _, width in cells if at == cost] for cost in ("0.1", "0.3", "0.5")]
    first, second, third = (f"{min(each):.2f} to {max(each):.2f}" for each in widths)
    assert f"it was {first}, {second} and {third} wide at these costs" in page


def test_what_labels_and_stakes_save_is_what_was_measured() -> None:
    page, truth = _words("docs/costs.md"), _words("benchmarks/results/regret-truth.md")
    saved = re.search(r"γ′ saves ([\d.]+ %) in the mean of these rows, ([\d.]+ %) at most", truth)
    assert saved
    assert f"γ′ saves {saved[1]} of the true cost in the mean and {saved[2]} at most" in page
    online = (RESULTS / "regret-truth.md").read_text("utf-8").partition("### Online")[2]
    labelled = [float(share) for share in re.findall(r"([\d.-]+) ± [\d.]+ % \|$", online, re.M)]
    assert f"save up to {max(labelled)} %" in page
    classes = (RESULTS / "regret-classes.md").read_text("utf-8").partition("### Vehicle or not")[2]
    sentinel, h2t2 = (
        [(float(cost), int(regret)) for cost, regret in re.findall(rf"\| {name} \| ([\d.]+) ±.* \| (\d+) ±", classes)]
        for name in ("sentinel, own stakes", "h2t2")
    )
    regrets = [[regret for _, regret in measured] for measured in (sentinel, h2t2)]
    assert f"is {min(regrets[0])} to {max(regrets[0])}, and that of" in page
    assert f"{min(regrets[1])} to {max(regrets[1])}: it costs" in page
    more = [100 * (theirs / ours - 1) for (ours, _), (theirs, _) in zip(sentinel, h2t2, strict=True)]
    assert f"it costs {min(more):.0f} to {max(more):.0f} % more" in page


def _words(page: str) -> str:
    return " ".join((ROOT / page).read_text("utf-8").split())


def test_the_theory_page_quotes_what_was_measured() -> None:
    page = _words("docs/theory.md")
    accept = section("decide.md", "An accepted sample")
    ours, literal = accept["hi-lcb"], accept["literal hi-lcb"]
    assert f"{ours[0]} in Python at 16 bins and {ours[3]} at 65 536 for HI-LCB" in page
    assert f"the formula takes {literal[0]} and {literal[3]}" in page


def test_the_readme_says_what_is_gained() -> None:
    found = trade("fashion", machine_code=False)
    assert found.sentence in _words("README.md")


def test_the_readme_says_what_a_language_model_gains() -> None:
    found = trade("intents-smollm2", machine_code=False)
    assert found.headline
    agreed = f"gives {100 * found.headline.agreement:.1f} % of the remote's answers."
    assert f"{agreed} {found.sentence}" in _words("README.md")


def test_the_readme_counts_the_real_traces() -> None:
    counts = dict(enumerate(("eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen"), 8))
    real = [name for name in trace_names() if not name.startswith("synthetic-")]
    assert f" {counts[len(real)]} real traces" in _words("README.md")


def test_what_the_pairs_teach_is_what_was_measured() -> None:
    page, text = _words("docs/pairs.md"), (RESULTS / "regret-pairs.md").read_text("utf-8")
    missed = re.findall(r"\| (0\.\d) \|.* \+([\d.]+%) .* ([\d.]+) \| \*\*not ([\w-]+)\*\*", text)
    above = [(cost, over) for cost, over, _, goal in missed if goal == "threshold"]
    assert above == [("0.2", "2.0%"), ("0.3", "2.4%")]
    first, second = (ratio for cost, _, ratio, goal in missed if (cost, goal) == ("0.5", "HI-LCB"))
    assert f"HI-LCB's at 0.5, by arithmetic ({first} ×) and speech ({second} ×)." in page
    assert len(missed) == 4
    pairs = {name: section("regret-pairs.md", name) for name in PAIRS}
    intents, reading, speech = (pairs[name] for name in ("intents-smollm2", "reading-tesseract", "speech-pocketsphinx"))
    for measure in (intents["answer probability"], reading["mean word score"]):
        *sixths, last = measure[0].split()
        assert f"{', '.join(sixths)} and {last}" in page
    by_first = [intents[measure][4] for measure in intents if measure.startswith(("first-token", "option"))]
    assert f"a threshold on it costs {intents['answer probability'][4]}." in page
    assert f"costs {intents['mean token probability'][4]}: it forgives" in page
    assert f"costs {min(by_first)} to {max(by_first)}." in page
    assert f"agreement is {intents['option probability'][3]} for the probability of the likeliest option, and" in page
    assert f"and {intents['answer probability'][3]} for that of the answer" in page
    assert f"{reading['mean word score'][3]} for the mean and {reading['least word score'][3]} for the least" in page
    for name, says in (("share of likelihood", "rises with agreement"), ("path probability", "does not")):
        *sixths, last = speech[name][0].split()
        assert f"{says}: {', '.join(sixths)} and {last}" in page
    five = [cells for cells in speech.values() if len(cells) == 7 and cells[4].startswith("0.")]
    heard, calibrated = [cells[4:] for cells in five], min(five, key=lambda cells: float(cells[3]))
    assert calibrated == speech["likelihood over any phones'"]
    assert f"that of any phones, they cost {calibrated[4]} and {calibrated[6]}" in page
    assert f"costs {heard[0][0]} and the default {heard[0][2]}, less than anything costs with the other four" in page
    assert len(heard) == 5
    assert max(heard[0]) < min(min(each) for each in heard[1:])
    *_, before, last = speech["path probability"][0].split()
    assert f"path probability the surest sixth agrees {last}, the one before {before}" in page
    threshold, isotonic, default = speech["path probability"][4:]
    assert f"costs {threshold}, Isotonic, which counts on a curve that never falls, {isotonic}, and the default" in page
    assert f"and the default {default}, as" in page
    assert speech["path probability"][2].startswith("bin")
    own = [(measures, load_trace(name).about["confidence"]) for name, measures in pairs.items()]
    assert [measures[name][2] for measures, name in own] == ["–"] * len(own)
    sums = pairs["arithmetic-smollm2"]
    assert f"surest it agrees {sums['mean token probability'][0].split()[-1]}." in page
    assert [sums[cost][0] for cost in ("0.1", "0.2")] == ["100.0%"] * 2
    assert f"{sums['0.2'][5].split()[-1]} at 0.2, three times as much" in page
    ours, sedna = reading["0.2"][2], re.findall(r"[\d.]{6}", reading["0.2"][5])
    assert f"cost {sedna[0]} and {sedna[1]} at an offload cost of 0.2, the default {ours}" in page
    share, agreed = (float(cell.strip("%")) for cell in reading["0.2"][:2])
    assert f"{agreed:.1f} % of the remote's text for {share:.0f} % of its calls" in _words("README.md")
    text = text.partition("### reading-tesseract")[2]
    fairly = re.search(r"(\d+) samples have no score.*Threshold ([\d.]+), IBT ([\d.]+) at cost 0.2", text)
    assert fairly
    assert f"In {fairly[1]} lines" in page
    assert f"({fairly[2]} and {fairly[3]})" in page


def test_what_finer_bins_do_for_the_pairs_is_what_was_measured() -> None:
    finer = rows(_table("regret-pairs.md", "With 64 uniform bins"))
    figures = {name: [cell.split() for cell in finer[name][:2]] for name in PAIRS}
    speech = figures.pop("speech-pocketsphinx")
    assert [finer[name][3:] for name in figures] == [["4 of 4"] * 3] * 4
    most, ratio = (
        max(max(cells[place], key=lambda each: float(each.strip("%"))) for cells in figures.values())
        for place in (0, 1)
    )
    page = _words("docs/pairs.md")
    assert f"at most {most.strip('+%')} % above the threshold and at {ratio} × HI-LCB's regret" in page
    assert (
        f"is {speech[0][2].strip('+%')} % above it at 0.3, and has {speech[1][2]} and {speech[1][3]} × HI-LCB's" in page
    )
    assert finer["speech-pocketsphinx"][3:] == ["3 of 4", "4 of 4", "2 of 4"]


def test_what_fitted_bins_do_for_the_pairs_is_what_was_measured() -> None:
    fitted = {name: rows(_table("regret-pairs.md", "With the bins that `hinge evaluate`"))[name] for name in PAIRS}
    most = max(float(over.strip("+%")) for cells in fitted.values() for over in cells[2].split())
    page = _words("docs/pairs.md")
    assert f"**at most {most} % above the best threshold, in every pair and at every cost**, and below every f" in page
    assert [cells[5:7] for cells in fitted.values()] == [["4 of 4"] * 2] * len(PAIRS)
    together = [cells[4] for cells in fitted.values()]
    assert f"it has {min(together)} to {max(together)} × in every pair, all four costs together" in page
    ratios = {name: dict(zip(COSTS, cells[3].split(), strict=True)) for name, cells in fitted.items()}
    worst = max(ratio for by_cost in ratios.values() for ratio in by_cost.values())
    assert f"and at most {worst} × in any of the {4 * len(PAIRS)} cells".replace("20", "twenty") in page
    assert f"as for arithmetic at 0.5 ({ratios['arithmetic-smollm2']['0.5']} ×)" in page


def test_what_many_bins_cost_the_default_is_what_was_measured() -> None:
    text = (RESULTS / "regret-fine.md").read_text("utf-8")
    form = r"^### (\d+) bins, traces held out.*?^\| \*\*geometric mean of ratios\*\* \| (.*?) \|$"
    tables = re.findall(form, text, re.MULTILINE | re.DOTALL)
    means = {bins: [float(cell) for cell in cells.split(" | ")] for bins, cells in tables}
    assert all(each[0] == min(each) and len(each) == 6 for each in means.values())
    said = " and ".join(", ".join(f"{means[bins][0]:.2f}" for bins in ("32", "64", "128")).rsplit(", ", 1))
    page = _words("docs/choose.md")
    assert f"With 32, 64 and 128 bins the geometric means of the ratios are {said} on the same traces" in page


def test_what_intervals_hold_where_all_bins_agree_alike_is_what_was_measured() -> None:
    text = (RESULTS / "regret-flat-logs.md").read_text("utf-8")
    held = re.findall(r"^\| sentinel \| (\d+) \| 0.5 \| \S+ \| (\d+) \| ([\d.]+)%", text, re.MULTILINE)
    short = [float(share) for _, samples, share in held if samples == "1000"]
    long = {bins: share for bins, samples, share in held if samples == "10000"}
    page = _words("docs/own-log.md")
    assert f"it then held in {min(short)} to {max(short)} %, and of 10 000 in {long['16']} % with 16 bins" in page
    assert f"and {long['64']} % with 64" in page


@pytest.mark.parametrize(
    "kind", ["16 uniform", "32 uniform", "64 uniform", "128 uniform", "32 quantile", "16 uniform, fitted"]
)
def test_what_bins_cost_is_what_was_measured(kind: str) -> None:
    page = rows((ROOT / "docs" / "costs.md").read_text("utf-8"))[kind]
    measured = [section("regret-bins.md", f"Images, T = {horizon}")[kind][-2:] for horizon in (2000, 10_000, 100_000)]
    assert page == [f"{mean} ({worst})".replace("%", " %") for mean, worst in measured]
    bunched = {name: cells[3] for name, cells in section("regret-bins.md", "Images, T = 100000").items()}
    said = f"on `cifar100-resnet50` they cost {bunched['64 uniform']} more than the threshold, 16 cost"
    said += f" {bunched['16 uniform']}, and 16 cut by quantiles {bunched['16 quantile']}."
    assert said.replace("%", " %") in _words("docs/costs.md")


@pytest.mark.parametrize("name", PAIRS)
def test_every_pair_is_on_the_page_as_measured(name: str) -> None:
    page, measured = rows((ROOT / "docs" / "pairs.md").read_text("utf-8")), section("regret-pairs.md", name)
    costs = [measured[cost] for cost in COSTS]
    share, agreed, *_ = (float(cell.strip("%")) for cell in measured["0.2"][:2])
    over = [float(cells[4].strip("+%")) for cells in costs]
    ratios = [cells[6] for cells in costs]
    said = [f"{share:.0f} %", f"{agreed:.1f} %", f"{min(over)} to {max(over)} %", f"{min(ratios)} to {max(ratios)} ×"]
    assert page[name] == [*said, measured["0.2"][2], measured["0.2"][5]]


@pytest.mark.parametrize("name", PAIRS)
def test_every_pair_is_described_as_recorded(name: str) -> None:
    trace, page = load_trace(name), (ROOT / "docs" / "pairs.md").read_text("utf-8").partition("\n## ")[0]
    samples, local, remote, agreement = rows(page)[name]
    assert samples.startswith(f"{len(trace):,} ".replace(",", " "))
    assert agreement == f"{100 * trace.agreement:.1f} %"
    if "truth" in trace.about:
        assert remote.endswith(", taken for right")
        return
    assert local.endswith(f", {100 * (trace.local_accuracy or 0):.1f} %")
    assert remote.endswith(f", {100 * (trace.remote_accuracy or 0):.1f} %")


def test_what_detectors_teach_is_what_was_measured() -> None:
    page, objects = _words("docs/pairs.md"), section("regret-pairs.md", "objects-yolox")
    mean, least, product = (objects[name] for name in ("mean score", "least score", "product of the scores"))
    *sixths, last = mean[0].split()
    assert f"photographs agree {', '.join(sixths)} and {last}" in page
    assert f"by {mean[3]}, the least score by {least[3]}" in page
    assert f"costs {mean[4]}, on the least score {least[4]}, and on the product of all scores" in page
    assert f"as much doubt, {product[4]}" in page
    assert [cells[2] for cells in (mean, least, product)] == ["–"] * 3
    text = (RESULTS / "regret-pairs.md").read_text("utf-8").partition("### objects-yolox")[2]
    nothing = re.search(r"(\d+) samples have no score, and agree ([\d.]+)\.", text)
    assert nothing
    assert f"In {nothing[1]} of them it saw nothing even at a score of 0.25, and they agree {nothing[2]}" in page


def test_what_is_no_answer_costs_what_was_measured() -> None:
    page, table = _words("docs/tasks.md"), (RESULTS / "regret-nothing.md").read_text("utf-8")
    head, _, *settings = [line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("|")]
    worst = {name: max(float(row[place]) for row in settings) for place, name in enumerate(head) if "," in name}
    assert len(settings) == 10
    assert f"Sentinel then costs at most {100 * worst['sentinel, lowest'] - 100:.1f} % more" in page
    assert f"it would be up to {100 * worst['sentinel, highest'] - 100:.1f} %" in page
    assert f"costs up to {worst['hi-lcb, lowest']:.1f} times as much" in page
    assert f"`hi-lcb-lite`, which costs {100 * worst['hi-lcb-lite, lowest'] - 100:.1f} % more at most" in page


def exported() -> set[str]:
    """Every series that a device or a server can show, without its labels."""
    registry, server = CollectorRegistry(), Metrics()
    with Device(list, max, Isotonic(bins=16, offload_cost=0.5)) as device:  # it is never asked anything
        registry.register(DeviceCollector(device))
        found = [*registry.collect(), *server.registry.collect(), *Reports(list).collect()]
    counted = {family.name + "_total" for family in found if family.type == "counter"}
    spread = {family.name for family in found if family.type == "histogram"}
    ends = ("_bucket", "_sum", "_count")
    now = {family.name for family in found if family.type == "gauge"}
    return counted | now | {name + end for name in spread for end in ends}


def test_prometheus_is_asked_for_metrics_that_there_are() -> None:
    page = (ROOT / "docs" / "prometheus.md").read_text("utf-8")
    scraping, ruling = (yaml.safe_load(text) for text in re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S))
    assert [job["job_name"] for job in scraping["scrape_configs"]] == ["hinge-device", "hinge-server"]
    rules = ruling["groups"][0]["rules"]
    assert len(rules) == 3
    for text in [*(rule["expr"] for rule in rules), *re.findall(r"`([^`]*\bhinge_[^`]*)`", page)]:
        assert set(re.findall(r"\bhinge_\w+", text)) <= exported(), text


def test_grafana_is_given_a_whole_dashboard_of_metrics_that_there_are() -> None:
    board = json.loads((ROOT / "deploy" / "grafana" / "hinge.json").read_text("utf-8"))
    assert (board["uid"], board["title"], type(board["schemaVersion"])) == ("hinge", "Hinge", int)
    assert {"time", "refresh", "templating", "annotations", "panels"} <= board.keys()
    (variable,) = board["templating"]["list"]
    assert (variable["name"], variable["type"], variable["query"]) == ("datasource", "datasource", "prometheus")
    panels = [panel for panel in board["panels"] if panel["type"] != "row"]
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"]) > len(panels) > 10
    known, places = exported(), set[tuple[int, int]]()
    for panel in panels:
        place = panel["gridPos"]
        covered = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not covered & places, panel["title"]
        places |= covered
        assert {"title", "datasource", "fieldConfig", "targets"} <= panel.keys()
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            metrics = set(re.findall(r"\bhinge_\w+", target["expr"]))
            assert metrics
            assert metrics <= known, target
            assert target["expr"].count("(") == target["expr"].count(")")


def test_the_policy_on_the_page_is_the_one_that_is_tested() -> None:
    page = (ROOT / "docs" / "add-a-policy.md").read_text("utf-8")
    source = (ROOT / "examples" / "own_policy.py").read_text("utf-8")
    assert len(source.splitlines()) <= 60
    written = {line.partition("  #")[0].strip() for line in source.splitlines()}
    for block in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S):
        for line in block.splitlines():
            assert line.strip() in written or line.startswith((">>>", "...")) or not line.strip(), line


def test_the_tests_that_the_promises_name_are_there() -> None:
    page = (ROOT / "docs" / "promises.md").read_text("utf-8")
    named = set(re.findall(r"`([\w/]*test_\w+\.py)`", page))
    assert len(named) > 10
    places = sorted(name.removeprefix("tests/") for name in named)
    assert [place for place in places if not (ROOT / "tests" / place).is_file()] == []
