"""Code for XLA:CPU alone. `platforms` is the only door to it; on other platforms nothing of this folder is imported."""
