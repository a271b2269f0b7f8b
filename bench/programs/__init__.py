"""Twenty programs, each with a mesh and where arguments begin and results end; ours beside XLA's of the same."""
