"""JAX functions distributed: traced, cut by a schedule, moved where types differ, run as one program."""
