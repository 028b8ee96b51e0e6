"""The command `device`."""

from contextlib import ExitStack, closing
from typing import Any

from hinge._checks import whole
from hinge.cli import options, show
from hinge.cli.device import options as own
from hinge.cli.device.exporting import report_to, serve_metrics
from hinge.cli.device.running import Run
from hinge.cli.device.setting import set_up
from hinge.cli.device.terms import Prices, policy_of, price_of
from hinge.device.device import Device
from hinge.oip.access import read_token


def device_command(
    samples: own.Samples = "fashion",
    local: own.Local = None,
    remote: own.Remote = None,
    model: own.Model = None,
    token_file: own.TokenFile = None,
    policy: options.Policy = "isotonic",
    offload_cost: own.OffloadCost = None,
    price_per_call: own.PricePerCall = None,
    price_per_ms: own.PricePerMs = None,
    price_per_byte: own.PricePerByte = None,
    wrong_answer: own.WrongAnswer = None,
    alpha: options.Alpha = 0.52,
    bins: options.Bins = 16,
    seed: options.Seed = 0,
    at_most: own.AtMost = None,
    deadline_s: own.DeadlineS = 0.2,
    batch: own.Batch = 1,
    limit: own.Limit = None,
    state: own.StateFolder = None,
    shadow: own.Shadow = None,
    metrics_port: own.MetricsPort = None,
    report: own.Report = None,
    json: own.Json = False,
    config: options.Config = None,
) -> None:
    """Run a device: answer samples with the local model, and ask the remote where that is worth its cost.

    Example: hinge device --local local.onnx --remote http://edge:8080 --model remote images/
    """
    whole("device", "batch", batch, 1)
    run = Run(batch, None if limit is None else whole("device", "limit", limit, 1), shadow, json)
    if state is not None and state.exists() and not state.is_dir():
        raise ValueError(f"{state} is not a folder")
    prices = Prices(price_per_call, price_per_ms, price_per_byte, wrong_answer)
    with show.interruptible(), ExitStack() as open_things:
        token = read_token(token_file)
        setting = set_up(samples, local, remote, model, token)
        open_things.enter_context(closing(setting.remote))
        known, price = price_of(offload_cost, prices, setting.recorded)
        settings = {"offload_cost": known, "alpha": alpha, "bins": bins, "seed": seed}
        chosen = policy_of(policy, settings, run.horizon(setting.stream), at_most)
        terms: dict[str, Any] = {"deadline_s": deadline_s, "price": price, "state": state, "shadow": shadow}
        device = Device(setting.local, setting.remote, chosen, labels=setting.stream.classes, batch=batch, **terms)
        open_things.enter_context(closing(device))
        if metrics_port is not None:
            open_things.enter_context(serve_metrics(device, metrics_port))
        if report is not None:
            run.reporter = open_things.enter_context(report_to(device, remote, report, token))
        run.arrival = setting.arrival
        run.through(device, setting.stream, f"hinge device {samples}, {policy}, remote {setting.where}")
    run.end(device)
