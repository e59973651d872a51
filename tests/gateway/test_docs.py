"""Do docs/api.md and /openapi.json name every route and code, and does the code raise no other?"""

import ast
import re
from pathlib import Path

import pytest
from starlette.routing import Route

import gateway
from gateway import problems
from gateway.app import ROUTES
from gateway.openapi import openapi_document

PACKAGE = Path(gateway.__file__ or "").parent
PAGE = (PACKAGE.parent / "docs" / "api.md").read_text("utf-8")
# Told by the worker's /readyz and the commands, never in an answer to a request.
START_UP_CODES = {"model_file_unusable"}


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_route_is_documented(route: Route) -> None:
    path = route.path.replace("{model:path}", "{model}")
    (method,) = (route.methods or set()) - {"HEAD"}
    assert re.search(rf"^\| {method} \| `{re.escape(path)}[`?]", PAGE, re.MULTILINE)


def test_the_description_names_every_route_and_no_other() -> None:
    documented = {
        (path, method.upper())
        for path, methods in openapi_document()["paths"].items()
        for method in methods
    }
    served = {
        (re.sub(r":path}", "}", route.path), method)
        for route in ROUTES
        for method in (route.methods or set()) - {"HEAD"}
    }
    assert documented == served


def test_the_page_has_the_table_of_codes() -> None:
    documented = re.findall(r"^\| `(\w+)` \| (\d{3}) \|", PAGE, re.MULTILINE)
    assert {code: int(status) for code, status in documented} == {
        code: problem.status for code, problem in problems._TABLE.items()
    }


def test_every_code_that_is_raised_is_in_the_table() -> None:
    raised = {
        call.args[0].value
        for path in PACKAGE.rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call)
        and getattr(call.func, "id", "") == "GatewayError"
        and isinstance(call.args[0], ast.Constant)
    }
    assert raised - START_UP_CODES <= problems._TABLE.keys()
    assert len(raised) > 20  # the search finds them
