"""llama.cpp's server, with the model in a GGUF file, on this machine's own address only.

    python -m tools.peers.served.llama MODEL.gguf PORT
"""

import signal
import sys

import xllamacpp  # type: ignore[import-not-found]  # installed only in the peer's environment

parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.port = int(sys.argv[2])
parameters.n_ctx, parameters.n_parallel, parameters.cpuparams.n_threads = 2048, 1, 1
server = xllamacpp.Server(parameters)
signal.sigwait({signal.SIGTERM, signal.SIGINT})
