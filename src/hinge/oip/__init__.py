"""The Open Inference Protocol over HTTP, without any I/O."""
