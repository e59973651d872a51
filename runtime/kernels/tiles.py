"""How large are the tiles of a GPU matrix product?

Chosen by the number of rows alone, so that all steps of one size run one compiled kernel. Sixteen
rows are the least that tensor cores take.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MatmulTiles:
    """Rows of x, outputs, and inputs that one iteration sums."""

    rows: int
    columns: int
    inputs: int


def matmul_tiles(num_rows: int) -> MatmulTiles:
    """Tall tiles for prefill; flat ones for decode, where reading the weights takes the time."""
    if num_rows <= 16:
        return MatmulTiles(rows=16, columns=32, inputs=128)
    if num_rows <= 64:
        return MatmulTiles(rows=32, columns=64, inputs=128)
    return MatmulTiles(rows=128, columns=128, inputs=64)
