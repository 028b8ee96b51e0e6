"""Several workers behind one port: each has a device with a folder of its own, and they learn from each other.

    python examples/workers.py                                      # two workers on a free port, asked about 600 images
    uvicorn --workers 4 --app-dir examples workers:app              # as a service
    gunicorn --workers 4 --chdir examples -k uvicorn_worker.UvicornWorker workers:app   # and the package uvicorn-worker

One process at a time may use a folder, so that a worker takes the first that is free: state/0, state/1, … A worker that
is started again goes on with what the one before it knew.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.error import URLError
from urllib.request import urlopen

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from hinge import AsyncDevice, Gate, OnnxModel, fashion
from hinge.device.store import read
from hinge.errors import StateInUse

FOLDER = Path(os.environ.get("WORKERS_STATE", "state"))
SHARE_S = float(os.environ.get("WORKERS_SHARE_S", "10"))
WORKERS, ASKED, PATIENCE_S = 2, 600, 60

images, _ = fashion.labelled_images()
remote = OnnxModel(fashion.remote_model())


def open_device() -> AsyncDevice:
    """A device in the first folder that no other worker uses. To be called in the worker, not before it is forked."""
    for slot in count():
        with suppress(StateInUse):
            return AsyncDevice(
                local=OnnxModel(fashion.local_model()),
                remote=lambda image: int(remote(image).argmax()),  # yours: OpenInference("http://edge:8080", "remote")
                gate=Gate(offload_cost=0.15),
                state=FOLDER / str(slot),
                deadline_s=10,
            )
    raise AssertionError  # there is no last slot


async def share(device: AsyncDevice) -> None:
    """Take over what the other workers have learned, now and then; what is known already changes nothing."""
    while True:
        await asyncio.sleep(SHARE_S)
        await asyncio.to_thread(lambda: device.merge(*FOLDER.iterdir()))


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[None]:
    """One device for each worker, from its start to its end."""
    async with open_device() as app.state.device:
        sharing = asyncio.create_task(share(app.state.device))
        yield
        sharing.cancel()


async def infer(request: Request) -> JSONResponse:
    """The answer to an image, by its number."""
    answer = await request.app.state.device.infer(images[request.path_params["number"]])
    return JSONResponse({"label": int(answer.label), "source": answer.source, "worker": os.getpid()})


app = Starlette(routes=[Route("/infer/{number:int}", infer)], lifespan=lifespan)


def main() -> None:
    """Start two workers, ask them, and show what each has learned."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "uvicorn", "--app-dir", str(Path(__file__).parent), "workers:app"]
        command += ["--workers", str(WORKERS), "--port", url.rpartition(":")[2], "--log-level", "error"]
        variables = {**os.environ, "WORKERS_STATE": folder, "WORKERS_SHARE_S": "0.2"}
        service = subprocess.Popen(command, env=variables)
        try:
            workers, sources = Counter[object](), Counter[object]()
            for number in range(len(images)):
                answer = asked(f"{url}/infer/{number}")
                workers[answer["worker"]] += 1
                sources[answer["source"]] += 1
                if number >= ASKED and len(workers) == WORKERS:
                    break
            time.sleep(1)  # the last are shared
        finally:
            service.terminate()
            service.wait(PATIENCE_S)
        print(f"{len(workers)} workers gave {workers.total()} answers: {dict(sources)}")
        for path in sorted(Path(folder).iterdir()):
            policy = read(path).policy
            known = policy.learned + policy.elsewhere
            print(f"{path.name}: {policy.time} samples, {policy.learned} offloads; with the other's it knows {known}")


def asked(url: str) -> dict[str, object]:
    """The answer of a service that may be about to start; over a new connection, which any worker may take."""
    end = time.monotonic() + PATIENCE_S
    while True:
        try:
            with urlopen(url, timeout=PATIENCE_S) as response:
                found: dict[str, object] = json.load(response)
                return found
        except URLError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    main()
