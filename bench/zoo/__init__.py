"""Programs of public libraries, by `rd.distribute` and by XLA with the same shardings: `make zoo`."""
