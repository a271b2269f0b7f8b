"""The redistributions that are timed: what mpi4py-fft can express, what HeAT can, and what neither can.

Those of the last group cut sizes that do not divide.
"""

from __future__ import annotations

from peers import Case


def cases(ranks: int, scale: float) -> dict[str, list[Case]]:
    """Cases by group, for 4 or 8 ranks; `scale` multiplies the first dimension of every array."""
    p = ranks
    a, b = (2, 2) if p == 4 else (2, 4)
    n = int(64 * scale)

    def d(size: int, axes: str = "", tiles: int = 1) -> str:
        """A dimension, cut balanced where the tiles do not divide it."""
        return f"{-(-size // tiles)}{'~' if size % tiles else ''}{{{axes}}}{size}" if axes else str(size)

    def t(*dims: str) -> str:
        return "[" + ", ".join(dims) + "]"

    one, two = f"x={p}", f"x={a},y={b}"
    slab = [
        Case(t(d(8 * n, "x", p), d(1024)), t(d(8 * n), d(1024, "x", p)), one, "float64"),
        Case(t(d(8 * n), d(1024, "x", p)), t(d(8 * n, "x", p), d(1024)), one, "float64"),
        Case(t(d(n, "x", p), d(64), d(128)), t(d(n), d(64, "x", p), d(128)), one, "float64"),
        Case(t(d(n, "x", p), d(64), d(128)), t(d(n), d(64), d(128, "x", p)), one, "float32"),
        Case(t(d(n), d(64, "x", p), d(128)), t(d(n, "x", p), d(64), d(128)), one, "complex128"),
        Case(t(d(n), d(64), d(128, "x", p)), t(d(n), d(64, "x", p), d(128)), one, "complex64"),
    ]
    pencil = [
        Case(t(d(n, "x", a), d(64, "y", b), d(128)), t(d(n, "x", a), d(64), d(128, "y", b)), two, "float64"),
        Case(t(d(n, "x", a), d(64), d(128, "y", b)), t(d(n), d(64, "x", a), d(128, "y", b)), two, "complex64"),
        Case(
            t(d(n, "x", a), d(16, "y", b), d(16), d(32)), t(d(n, "x", a), d(16), d(16, "y", b), d(32)), two, "float32"
        ),
    ]
    whole = [
        Case(t(d(8 * n, "x", p), d(1024)), t(d(8 * n), d(1024)), one, "float32"),
        Case(t(d(8 * n), d(1024, "x", p)), t(d(8 * n), d(1024)), one, "float64"),
    ]
    free = [
        Case(t(d(8 * n, "x", a), d(1024, "y", b)), t(d(8 * n, "y", b), d(1024, "x", a)), two, "float32"),
        Case(t(d(n, "x,y", p), d(64), d(128)), t(d(n), d(64, "y", b), d(128)), two, "float64"),
        Case(t(d(n, "x", a), d(64, "y", b), d(128)), t(d(n), d(64, "x", a), d(128, "y", b)), two, "float32"),
    ]
    uneven = [  # the same with sizes that are odd or prime
        Case(t(d(8 * n + 1, "x", p), d(1021)), t(d(8 * n + 1), d(1021, "x", p)), one, "float64"),
        Case(t(d(8 * n + 1), d(1021, "x", p)), t(d(8 * n + 1, "x", p), d(1021)), one, "float64"),
        Case(t(d(n + 1, "x", p), d(61), d(127)), t(d(n + 1), d(61, "x", p), d(127)), one, "float64"),
        Case(t(d(n + 1), d(61, "x", p), d(127)), t(d(n + 1, "x", p), d(61), d(127)), one, "complex128"),
        Case(t(d(n + 1), d(61), d(127, "x", p)), t(d(n + 1), d(61, "x", p), d(127)), one, "complex64"),
        Case(t(d(n + 1, "x", a), d(61, "y", b), d(127)), t(d(n + 1, "x", a), d(61), d(127, "y", b)), two, "float64"),
        Case(t(d(n + 1, "x", a), d(61), d(127, "y", b)), t(d(n + 1), d(61, "x", a), d(127, "y", b)), two, "complex64"),
    ]
    return {"slab": slab, "pencil": pencil, "gather": whole, "mixed": free, "uneven": uneven}
