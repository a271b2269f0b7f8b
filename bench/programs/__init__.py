"""Twenty programs, each with a mesh and the shardings of arguments and results; ours beside XLA's."""
