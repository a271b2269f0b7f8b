"""Programs: JAX functions and nests cut, simulated, searched, pipelined and run. They are the second wheel."""
