"""Weights in safetensors files: `redistrib.load` and `redistrib.save`, which use `resharding`."""
