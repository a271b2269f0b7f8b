"""Code for XLA:CPU alone: `quirks` of virtual CPU devices, and `half_duplex` links between processes on CPUs.

Lowering calls `quirks.quirks_of(platform)`. No other platform has quirks, and nothing else of this folder runs there.
"""
