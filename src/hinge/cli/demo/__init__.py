"""The command `demo`: a device and an edge server at work on real images, with other policies beside them."""
