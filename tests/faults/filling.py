"""A device whose disk is full for a while: the system lets no file grow beyond some size. Prints what it saw.

python filling.py FOLDER SAMPLES LIMIT
"""

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from hinge import Device
from tests.device.worlds import LOCAL, Scripted, policy, true_label


def limit_files(size: int) -> None:
    most = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (most if size < 0 else size, most))


def infer(device: Device, first: int, samples: int) -> bool:
    """Whether every sample got the answer that it should."""
    right = True
    for sample in range(first, first + samples):
        answer = device.infer(sample)
        expected = true_label(sample) if answer.source == "remote" else LOCAL.answer(sample)[0]
        right &= answer.label == expected and answer.fault is None
    return right


def main(folder: Path, samples: int, limit: int) -> None:
    limit_files(limit)
    seen: dict[str, Any] = {}
    with Device(LOCAL, Scripted(), policy(offload_cost=0.1), state=folder) as device:
        seen["answered"] = infer(device, 0, samples)
        seen["while_limited"] = device.status.samples
        seen["not_durable"], seen["alarms"] = device.status.not_durable, device.status.alarms
        limit_files(-1)
        seen["answered_after"] = infer(device, samples, samples)
        for _ in range(1000):  # until the thread has synced
            if device.status.not_durable is None:
                break
            time.sleep(0.02)
        seen["durable_after"] = device.status.not_durable
        seen["state"] = device.policy.state()
    print(json.dumps(seen))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
