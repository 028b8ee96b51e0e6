"""The command `record`."""

from contextlib import closing
from itertools import islice, tee
from pathlib import Path
from typing import Annotated, Any

import typer

from hinge.cli import console, options
from hinge.cli.device_models import Certificates, Parts, set_up
from hinge.cli.device_view import Output
from hinge.cli.options import UsageError
from hinge.confidence import max_softmax
from hinge.device.record import record
from hinge.models import Recorded
from hinge.remotes.http import read_token


@options.grouped
def command(
    *,
    samples: Annotated[
        str,
        typer.Argument(
            help="A folder of images, an .npz or .npy file, '-' for raw frames on standard input, or 'fashion' for "
            "the images that come with Hinge."
        ),
    ],
    out: Annotated[Path, typer.Option(help="The file for the trace: .npz, .csv or .parquet.")],
    local: options.Local = None,
    remote: options.Remote = None,
    model: options.Model = None,
    output: options.Output = None,
    remote_output: options.RemoteOutput = None,
    input: options.Input = None,
    labels: options.Labels = None,
    confidence: options.Confidence = None,
    token_file: options.TokenFile = None,
    certificates: Certificates,
    batch: Annotated[int, typer.Option(min=1, help="Samples that the models are asked about at once.")] = 32,
    deadline_s: Annotated[float, typer.Option(help="Seconds for the remote to answer a batch.")] = 30.0,
    limit: Annotated[int | None, typer.Option(min=1, help="End after this many samples.")] = None,
    json: options.Json = False,
) -> None:
    """Both models answer every sample; 'hinge evaluate' then says what each policy would have cost. A recording that
    is interrupted is kept beside the file, and the same command goes on with it. A remote that fails is asked again,
    four times within 15 seconds.

    Example: hinge record images/ --local local.onnx --remote http://edge:8080 --model remote --out trace.npz
    """
    given: dict[str, Any] = {"output": output, "remote_output": remote_output, "input": input, "labels": labels}
    given |= {"confidence": confidence, "token_file": token_file, **vars(certificates)}
    models = samples, local, remote, model, read_token(token_file), certificates
    parts = Parts(options.class_names(labels), input, output, remote_output)
    with console.interruptible(), closing(set_up(*models, parts)) as setup:
        stream = setup.stream
        if isinstance(setup.local, Recorded):
            raise UsageError(f"{samples} is a trace, recorded already: hinge evaluate {samples}")
        if setup.fit is not None:
            setup.fit.check()
        known, truth = tee(islice(stream.cases, limit))
        length = min((n for n in (stream.length, limit) if n is not None), default=None)
        with console.progress(f"recording {samples}", compiles=False) as bar, Output():
            try:
                trace = record(
                    setup.local,
                    setup.remote,
                    (case.sample for case in known),
                    (case.truth for case in truth),
                    labels=stream.classes,
                    confidence=options.measure(confidence) or max_softmax,
                    batch=batch,
                    deadline_s=deadline_s,
                    out=out,
                    about={f"--{name}": str(value) for name, value in given.items() if value is not None},
                    progress=lambda done: bar(done, length),
                )
            except BaseException as error:
                for kept in getattr(error, "__notes__", ()):
                    console.warn(kept)
                raise
    figures = {key: getattr(trace, key) for key in ("agreement", "local_accuracy", "remote_accuracy")}
    if json:
        console.print_json({"out": str(out), "samples": len(trace), **figures})
        return
    text = f"{out}: {console.counted(len(trace), 'sample')}, local agrees with remote on {trace.agreement:.2%}"
    if trace.label is not None:
        text += f"; local is right on {trace.local_accuracy:.2%}, remote on {trace.remote_accuracy:.2%}"
    console.say(text)
    console.say(f"What each policy would have cost on them: hinge evaluate {out}")
