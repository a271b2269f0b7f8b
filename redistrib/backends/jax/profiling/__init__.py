"""What compiled programs do and how long collectives take: read, compared, timed."""
