"""Many arrays in one compiled program."""
