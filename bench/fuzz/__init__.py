"""A fuzzer: random problems, forged plans, hostile texts and trees of arrays, each case made by a seed and an index."""
