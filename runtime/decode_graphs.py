"""How does a decode step start without launching every kernel anew?  Recorded once per batch size.

A recorded step reads its inputs from tensors that stay where they are; a plan is copied into them,
padded to the next recorded size with rows that are a first token each, in a block of no sequence.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from runtime.models.decoder import StepInputs, uploaded_rotations

if TYPE_CHECKING:
    from torch import Tensor

    from runtime.devices.base import Device, Step
    from runtime.models.config import ModelConfig
    from runtime.plan import StepPlan

MAX_GRAPH_ROWS = 128  # more rows keep a GPU busy without this


@dataclass(frozen=True, slots=True, kw_only=True)
class _Graph:
    inputs: StepInputs
    tiles: Tensor  # (rows, 4) int32, see TritonStep
    block_tables: Tensor  # (rows, max blocks) int32
    replay: Step


class DecodeGraphs:
    """Steps in which every sequence has one token and wants its logits."""

    def __init__(
        self,
        forward: Callable[[StepInputs], Tensor],
        *,
        device: Device,
        config: ModelConfig,
        max_blocks: int,
        block_size: int,
        scratch_block: int,
    ) -> None:
        """``max_blocks`` of one sequence; ``scratch_block`` is no sequence's."""
        self._forward = forward
        self._device = device
        self._config = config
        self._max_blocks = max_blocks
        self._scratch_block = scratch_block
        self._scratch_slot = scratch_block * block_size
        self._graphs: dict[int, _Graph] = {}

    def takes(self, plan: StepPlan) -> bool:
        """Whether ``run`` may be called: every row is one sequence's, and its logits are wanted."""
        num_rows = plan.num_tokens
        return (
            0 < num_rows <= MAX_GRAPH_ROWS
            and num_rows == plan.num_sequences == len(plan.logits_rows)
            and bool((np.diff(plan.query_starts) == 1).all())
        )

    def run(self, plan: StepPlan) -> Tensor:
        """Logits (S, V) of ``plan.logits_rows``."""
        num_rows = plan.num_tokens
        size = 1 << (num_rows - 1).bit_length()
        graph = self._graphs.get(size) or self._record(size)
        self._fill(graph, plan, num_rows)
        return graph.replay()[self._device.upload(plan.logits_rows.astype(np.int64))]

    def _record(self, size: int) -> _Graph:
        from runtime.kernels.paged_attention.triton import TritonStep

        upload, config = self._device.upload, self._config
        rows = np.arange(size, dtype=np.int32)
        tiles = np.stack([rows, rows, np.ones_like(rows), np.zeros_like(rows)], axis=1)
        tables = np.full((size, self._max_blocks), self._scratch_block, np.int32)
        on_device = (upload(tiles), upload(tables))
        none = np.zeros(size, np.int32)
        inputs = StepInputs(
            token_ids=upload(none.astype(np.int64)),
            rotations=tuple(
                uploaded_rotations(self._device, table, none) for table in config.rope_tables
            ),
            slots=upload(np.full(size, self._scratch_slot, np.int64)),
            logits_rows=upload(np.arange(size)),
            attention=TritonStep(
                tiles=tiles, block_tables=tables, num_queries=1, on_device=on_device
            ),
        )
        replay = self._device.capture(lambda: self._forward(inputs))
        graph = _Graph(inputs=inputs, tiles=on_device[0], block_tables=on_device[1], replay=replay)
        self._graphs[size] = graph
        return graph

    def _fill(self, graph: _Graph, plan: StepPlan, num_rows: int) -> None:
        upload, inputs = self._device.upload, graph.inputs
        inputs.token_ids.fill_(0)
        inputs.token_ids[:num_rows] = upload(plan.token_ids.astype(np.int64))
        inputs.slots.fill_(self._scratch_slot)
        inputs.slots[:num_rows] = upload(plan.slot_mapping)
        for into, table in zip(inputs.rotations, self._config.rope_tables, strict=True):
            for kept, new in zip(
                into, uploaded_rotations(self._device, table, plan.positions), strict=True
            ):
                kept[:num_rows] = new
        rows = np.arange(len(graph.tiles), dtype=np.int32)
        positions = np.zeros(len(rows), np.int32)
        positions[:num_rows] = plan.positions
        graph.tiles.copy_(upload(np.stack([rows, rows, np.ones_like(rows), positions], axis=1)))
        graph.block_tables[num_rows:, 0] = self._scratch_block
        width = plan.block_tables.shape[1]
        graph.block_tables[:num_rows, :width] = upload(plan.block_tables)
