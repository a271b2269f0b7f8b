"""Many arrays at once, whatever the backend: which share a launch, in what order, and the bytes alive meanwhile."""
