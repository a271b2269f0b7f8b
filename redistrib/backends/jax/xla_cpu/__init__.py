"""What XLA:CPU alone wants: `quirks` of virtual CPU devices, and `half_duplex` links between processes on CPUs.

Lowering asks `quirks.quirks_of(platform)`. No other platform has a quirk, and nothing of this folder runs there.
"""
