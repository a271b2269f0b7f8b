"""Side by side with XLA, DTensor and the TPU compiler: `python -m bench --help`."""
