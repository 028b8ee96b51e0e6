"""The command `device`: a device run over images, arrays, frames or a trace, and what a person sees of it."""
