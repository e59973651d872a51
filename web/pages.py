"""What does a browser see at `/`?  The bundled dashboard, else a plain page of tables."""

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, Response

from web import api, schemas

_BUNDLED: Final = Path(__file__).parent / "static"
_ICON: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">'
    '<circle cx="8" cy="8" r="7" fill="#e0a030"/>'
    '<circle cx="10" cy="7" r="5" fill="#20304a"/></svg>'
)

router = APIRouter(include_in_schema=False)


def bundle_dir(static_dir: Path | None) -> Path | None:
    """Where the dashboard's files lie; None when it was not built."""
    folder = _BUNDLED if static_dir is None else static_dir
    return folder if (folder / "index.html").is_file() else None


@router.get("/")
def index(request: Request) -> Response:
    """The dashboard."""
    bundle: Path | None = request.app.state.bundle
    if bundle is not None:
        return FileResponse(bundle / "index.html", headers={"cache-control": "no-cache"})
    return HTMLResponse(_tables(request))


@router.get("/healthz")
def healthz() -> dict[str, str]:
    """Alive."""
    return {"status": "ok"}


@router.get("/favicon.ico")
def favicon() -> Response:
    """A small icon, so that no browser logs its absence."""
    return Response(_ICON, media_type="image/svg+xml")


def _tables(request: Request) -> str:
    overview = api.get_overview(request)
    workers = api.get_workers(request).workers
    runs = api.get_runs(request, limit=20).runs
    totals = overview.totals
    latencies = (
        ("TTFT (s)", totals.ttft_s),
        ("ITL (s)", totals.itl_s),
        ("TPOT (s)", totals.tpot_s),
        ("E2E (s)", totals.e2e_s),
    )
    sections = (
        _table("Requests, last hour", ("", "count"), _counts(totals)),
        _table(
            "Latency, last hour",
            ("", "count", "p50", "p90", "p99"),
            [(name, v.count, v.p50, v.p90, v.p99) for name, v in latencies],
        ),
        _table(
            "Workers",
            ("worker", "verdict", "code", "policy", "reason"),
            [(w.id, w.tier, w.code, w.policy, w.reason) for w in workers],
        ),
        _table(
            "Load tests",
            ("run", "profile", "valid", "requests", "failed", "TTFT p50", "TTFT p99"),
            [
                (r.label, r.profile, r.valid, r.requests, r.failed, r.ttft_s.p50, r.ttft_s.p99)
                for r in runs
            ],
        ),
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Starshade</title>'
        '<meta name="viewport" content="width=device-width"></head><body><main>'
        "<h1>Starshade observatory</h1><p>The dashboard was not built; these are its numbers.</p>"
        f"{''.join(sections)}</main></body></html>"
    )


def _counts(totals: schemas.Totals) -> list[tuple[object, ...]]:
    return [
        ("requests", totals.requests),
        ("errors", totals.errors),
        ("prompt tokens", totals.prompt_tokens),
        ("of these from the prefix cache", totals.cached_tokens),
        ("output tokens", totals.output_tokens),
    ]


def _table(caption: str, heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row) + "</tr>"
        for row in rows
    )
    return (
        f"<h2>{escape(caption)}</h2><table><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
