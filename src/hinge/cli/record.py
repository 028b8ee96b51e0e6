"""The command `record`: both models asked about every sample, for a log."""

from contextlib import closing
from itertools import islice, tee
from pathlib import Path
from typing import Annotated

from hinge.cli import console, options
from hinge.cli.device_models import ModelOptions, set_up
from hinge.cli.device_samples import SAMPLES
from hinge.cli.device_summary import Warnings
from hinge.cli.options import Certificates, option
from hinge.cli.settings import UsageError
from hinge.confidence import max_softmax
from hinge.device.record import record
from hinge.models import RecordedModel
from hinge.policies.policy import MAX_SAMPLES
from hinge.tasks import Classification


def record_command(
    samples: Annotated[str, option(f"{SAMPLES}.", allow_leading_hyphen=True)],
    /,
    *,
    out: Annotated[Path, option("The file for the trace: .npz, .csv or .parquet.")],
    models: ModelOptions = ModelOptions(),
    certificates: Certificates = Certificates(),
    batch: Annotated[int, option("Samples that the models are asked about at once.", 1)] = 32,
    deadline_s: Annotated[float, option("Seconds for the remote to answer a batch.")] = 30.0,
    limit: Annotated[int | None, option("End after this many samples.", 1, MAX_SAMPLES)] = None,
    as_json: options.Json = False,
) -> None:
    """Both models answer every sample; 'hinge evaluate' then says what each policy would have cost. A recording that
    is interrupted is kept beside the file, and the same command goes on with it. A remote that fails is asked again,
    four times within 15 seconds.

    Example: hinge record images/ --local local.onnx --remote http://edge:8080 --model remote --out trace.npz
    """
    known = {name: value for name, value in vars(models).items() if name not in ("local", "remote", "model")}
    given = {name: str(value) for name, value in {**known, **vars(certificates)}.items() if value is not None}
    with console.interruptible(), closing(set_up(samples, models, certificates)) as setup:
        stream = setup.stream
        if isinstance(setup.local, RecordedModel):
            raise UsageError(f"{samples} is a trace, recorded already: hinge evaluate {samples}")
        if setup.fit is not None:
            setup.fit.check()
        asked, truth = tee(islice(stream.cases, limit))
        length = min((n for n in (stream.length, limit) if n is not None), default=None)
        with console.progress(f"recording {samples}", compiles=False) as bar, Warnings():
            try:
                trace = record(
                    setup.local,
                    setup.remote,
                    (case.sample for case in asked),
                    (case.truth for case in truth),
                    task=Classification(stream.classes, models.measure or max_softmax),
                    batch=batch,
                    deadline_s=deadline_s,
                    out=out,
                    about={f"--{name}": value for name, value in given.items()},
                    progress=lambda done: bar(done, length),
                )
            except BaseException as error:
                for kept in getattr(error, "__notes__", ()):
                    console.warn(kept)
                raise
    figures = {key: getattr(trace, key) for key in ("agreement", "local_accuracy", "remote_accuracy")}
    text = f"{out}: {console.counted(len(trace), 'sample')}, local agrees with remote on {trace.agreement:.2%}"
    if trace.label is not None:
        text += f"; local is right on {trace.local_accuracy:.2%}, remote on {trace.remote_accuracy:.2%}"
    further = f"What each policy would have cost on them: hinge evaluate {out}"
    console.print_either(as_json, {"out": str(out), "samples": len(trace), **figures}, text, further)
