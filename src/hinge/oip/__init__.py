"""The Open Inference Protocol over HTTP and gRPC, without any I/O."""
