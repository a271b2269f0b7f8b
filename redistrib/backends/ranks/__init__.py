"""The executor of a process per device: `RankMove` runs a plan over any `Wire`, between tiles in any `RankMemory`.

`protocols` says what a library gives: messages between ranks, its collectives, and flat memory. `sides` packs boxes,
`runners` turns each stage of a plan into messages and local copies, `sums` adds, and `move` runs the stages in order.
MPI and PyTorch are a wire and a memory each; none of this imports them.
"""
