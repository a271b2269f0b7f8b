"""Functions that every rank runs."""
