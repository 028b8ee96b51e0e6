"""Our gRPC messages are those of NVIDIA's own client, and the two can live in one process."""

import subprocess
import sys

PEER = """
import sys
from tritonclient.grpc import service_pb2
import hinge.oip.grpc as ours  # beside it, in one process
import numpy as np

body = ours.build_request({"x": np.array([[1, 2]], np.int16)}, model="m", version="3", id="42")
request = service_pb2.ModelInferRequest.FromString(body)
assert (request.model_name, request.model_version, request.id) == ("m", "3", "42")
[tensor] = request.inputs
assert (tensor.name, tensor.datatype, list(tensor.shape)) == ("x", "INT16", [1, 2])
assert list(request.raw_input_contents) == [b"\\x01\\x00\\x02\\x00"]
assert request.SerializeToString(deterministic=True) == body

response = service_pb2.ModelInferResponse(model_name="m", model_version="3", id="42")
response.parameters["sequence_id"].int64_param = 7
output = response.outputs.add(name="y", datatype="FP32", shape=[2])
output.parameters["classification"].int64_param = 1
response.raw_output_contents.append(np.array([1, 2], "<f4").tobytes())
assert ours.parse_response(response.SerializeToString(), id="42", model="m").outputs["y"].tolist() == [1, 2]
del response.raw_output_contents[:]
for datatype, field in ours._TYPED.items():
    output.datatype = datatype
    output.contents.Clear()
    getattr(output.contents, field).extend([b"a", b"b"] if datatype == "BYTES" else [1, 0])
    assert len(ours.parse_response(response.SerializeToString(), id="42").outputs["y"]) == 2

metadata = service_pb2.ModelMetadataResponse(name="m", platform="p", versions=["1", "2"])
metadata.inputs.add(name="x", datatype="INT16", shape=[-1, 2])
metadata.outputs.add(name="y", datatype="FP32", shape=[-1])
read = ours.parse_model_metadata(metadata.SerializeToString())
assert (read.name, read.platform, read.versions) == ("m", "p", ("1", "2"))
assert [(spec.name, spec.shape) for spec in read.inputs + read.outputs] == [("x", (-1, 2)), ("y", (-1,))]
server = service_pb2.ServerMetadataResponse(name="s", version="v", extensions=["e"])
assert ours.parse_server_metadata(server.SerializeToString()) == ours.ServerMetadata("s", "v", ("e",))
asked = service_pb2.ModelMetadataRequest.FromString(ours.build_model_request("m", "3"))
assert (asked.name, asked.version) == ("m", "3")
assert service_pb2.DESCRIPTOR.services_by_name["GRPCInferenceService"].full_name == ours.SERVICE
print("agreed")
"""


def test_the_messages_are_those_of_tritons_own_client() -> None:
    done = subprocess.run([sys.executable, "-c", PEER], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("agreed\n", "")
