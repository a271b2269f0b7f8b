"""Weights in files: what `redistrib.load` and `redistrib.save` do over safetensors files and `resharding`."""
