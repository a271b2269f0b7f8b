"""Schedules that nobody wrote: how to cut every operation of a program so that it takes the least time."""
