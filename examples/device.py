"""A device of your own: the local model answers, the policy decides, the remote model settles what is in doubt.

    python examples/device.py [URL]

It wants `local.onnx` and `samples.npz` in this folder, which examples/own_models.py makes, and a server that has a
model named `remote`. Run it again, and it goes on with what it has learned, which is in the folder `state`.
"""

import sys

import numpy as np

from hinge import Classification, Device, OnnxModel, OpenInference, fashion

url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
data = np.load("samples.npz")
samples, truth = data["samples"], [fashion.CLASSES[label] for label in data["labels"]]
with Device(
    local=OnnxModel("local.onnx"),
    remote=OpenInference(url, model="remote"),
    offload_cost=0.2,
    task=Classification(fashion.CLASSES),
    deadline_s=1.0,
    state="state",
) as device:
    right = alone = 0
    for number, sample in enumerate(samples):
        answer = device.infer(sample)
        right += answer.label == truth[number]
        alone += answer.local == truth[number]
        if number % 1000 == 0:
            print(f"{number}: {answer.label}, says {answer.source}. {answer.reason}")
    status = device.status
    print(f"{right / len(samples):.1%} right, local alone {alone / len(samples):.1%}")
    print(f"{status.samples} samples, {status.answered_by_remote} answered by the remote")
