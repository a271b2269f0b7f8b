"""Side by side with XLA, DTensor and the TPU compiler: `python -m bench --help`."""

import os

# Measured is that which accelerators run; on CPU devices of one process `reshard` may copy instead.
os.environ.setdefault("REDISTRIB_VIA", "collectives")
