"""What runs inside the peers, in their own environments: an ONNX model as each of them wants it."""
