"""Programs timed before they run: one clock for each device, and the bytes that each holds."""
