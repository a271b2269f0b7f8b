"""Programs on an `mpi4py` communicator: nests on NumPy tiles, plans by their executors, other moves by `direct`."""
