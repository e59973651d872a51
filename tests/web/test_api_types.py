"""Does src/api.ts say of each answer what the JSON API says of it?  Names and what may be null."""

import re
from pathlib import Path
from typing import get_args

import pytest
from pydantic import BaseModel

from web import schemas

API = (Path(schemas.__file__).parent / "src" / "api.ts").read_text("utf-8")
MODELS: dict[str, type[BaseModel]] = {
    "Quantiles": schemas.QuantilesOut,
    "QuantileSeries": schemas.QuantileSeries,
    "Series": schemas.Series,
    "Totals": schemas.Totals,
    "Overview": schemas.OverviewOut,
    "Run": schemas.RunOut,
    "Worker": schemas.WorkerOut,
    "RequestRow": schemas.RequestOut,
}


@pytest.mark.parametrize("name", MODELS)
def test_an_interface_is_its_model(name: str) -> None:
    body = re.search(rf"export interface {name} {{\n(.*?)^}}", API, re.MULTILINE | re.DOTALL)
    assert body is not None
    declared = dict(re.findall(r"^  readonly (\w+): (.*)$", body[1], re.MULTILINE))
    fields = MODELS[name].model_fields
    assert declared.keys() == fields.keys()
    nullable = {name for name, kind in declared.items() if kind.endswith("| null;")}
    assert nullable == {
        name for name, field in fields.items() if type(None) in get_args(field.annotation)
    }
