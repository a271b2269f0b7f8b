"""The kernels of compilers for accelerators: which operations of a program are computed together."""
