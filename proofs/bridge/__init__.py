"""Plans as Coq terms, and the Coq checker and `verify` held against each other."""
