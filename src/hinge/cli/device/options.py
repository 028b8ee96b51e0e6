"""The options that `device` alone has."""

from pathlib import Path
from typing import Annotated

import typer

from hinge.traces import trace_names

Samples = Annotated[
    str,
    typer.Argument(
        help="A folder of images, an .npz or .npy file, '-' for raw frames on standard input, a trace by name or "
        "file, or 'fashion' for the images that come with Hinge.",
        autocompletion=trace_names,
    ),
]
Local = Annotated[Path | None, typer.Option(help="The local model: .onnx, .tflite or .xml (OpenVINO).")]
Remote = Annotated[str | None, typer.Option(help="The server of the remote model: http://, https:// or grpc://.")]
Model = Annotated[str | None, typer.Option(help="The name of the remote model on its server.")]
TokenFile = Annotated[Path | None, typer.Option(help="A file with the token to show the server; or set HINGE_TOKEN.")]
OffloadCost = Annotated[
    str | None,
    typer.Option(
        help="What an offload costs, from 0 to 1; or 'learned', by the prices. Without it: learned where there are "
        "prices, or a trace that recorded costs; else 0.5."
    ),
]
PricePerCall = Annotated[float | None, typer.Option(help="The price of an offload as such, in any unit.")]
PricePerMs = Annotated[float | None, typer.Option(help="The price of a millisecond, in the same unit.")]
PricePerByte = Annotated[float | None, typer.Option(help="The price of a byte, in the same unit.")]
WrongAnswer = Annotated[float | None, typer.Option(help="The price of a wrong answer, in the same unit.")]
AtMost = Annotated[float | None, typer.Option(help="Offload at most this share of any 1000 samples in a row.")]
DeadlineS = Annotated[float, typer.Option(help="Seconds from an offload until the local answer stands.")]
Batch = Annotated[int, typer.Option(help="Samples that are decided together, and sent together.")]
Limit = Annotated[int | None, typer.Option(help="End after this many samples; some policies have to know how many.")]
StateFolder = Annotated[Path | None, typer.Option("--state", help="The folder in which the policy survives.")]
Shadow = Annotated[str | None, typer.Option(help="Answer always by 'local', or always by 'remote', and learn.")]
MetricsPort = Annotated[
    int | None, typer.Option(help="Serve metrics for Prometheus at this port of 127.0.0.1; 0 takes any that is free.")
]
Report = Annotated[
    str | None, typer.Option(help="Show this device, under this name, on the live page of the remote's server.")
]
Json = Annotated[bool, typer.Option("--json", help="Print a JSON object for every answer, and then the summary.")]
