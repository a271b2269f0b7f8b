"""Programs and what is read off them: nests, values, operations, graphs, texts, and what ranks do of them."""
