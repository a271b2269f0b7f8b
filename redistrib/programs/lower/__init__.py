"""From a schedule to a program: layout versions, moves, halos, padding, gathers ahead and sums behind."""
