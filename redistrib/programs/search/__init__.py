"""Search for schedules: the cut of every operation of a program with which it takes the least time."""
