"""Twenty programs, each with a mesh and where its arguments begin and its results end; ours beside XLA's of the same."""
