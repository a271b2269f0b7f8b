"""DTensors by plans: one at a time, with gradients, and whole trees."""
