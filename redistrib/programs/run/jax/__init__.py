"""Programs on JAX: one `shard_map` of the devices of one place, and several places one after the other."""
