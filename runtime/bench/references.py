"""Which greedy texts did a reference give for a model file, and how sure was it of each token?

JSON: ``sha256`` of the model file and ``rows``, each with ``prompt_ids``, ``hf_f32_ids`` and
``hf_f32_margin`` (best minus second logit at each step).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.bench.report import NotMeasurable

MAX_FILE_BYTES = 1 << 26


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One prompt and the f32 reference's greedy output."""

    prompt_ids: tuple[int, ...]
    output_ids: tuple[int, ...]
    margins: tuple[float, ...]

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.prompt_ids + self.output_ids


def load_references(path: Path, *, weights_sha256: str) -> list[Reference]:
    """Raises: NotMeasurable when the file is no such file, or of another model's weights."""
    if path.stat().st_size > MAX_FILE_BYTES:
        raise NotMeasurable("the file of references is too large")
    try:
        value = json.loads(path.read_bytes())
        if value["sha256"] != weights_sha256:
            raise NotMeasurable("the references are of another model file")
        references = [_reference(row) for row in value["rows"]]
    except (ValueError, LookupError, TypeError) as err:
        raise NotMeasurable(f"{path.name} is no file of references") from err
    if not references:
        raise NotMeasurable(f"{path.name} has no row")
    return references


def _reference(row: Mapping[str, Any]) -> Reference:
    reference = Reference(
        prompt_ids=_ids(row["prompt_ids"]),
        output_ids=_ids(row["hf_f32_ids"]),
        margins=tuple(float(margin) for margin in row["hf_f32_margin"]),
    )
    if len(reference.margins) != len(reference.output_ids):
        raise ValueError("a margin for each token")
    return reference


def _ids(values: Sequence[object]) -> tuple[int, ...]:
    ids = tuple(value for value in values if type(value) is int)
    if not ids or len(ids) != len(values):
        raise ValueError("token ids are integers")
    return ids
