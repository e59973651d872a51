"""The observatory as one ASGI app: dashboard, JSON API and OTLP ingest over one telemetry.db."""

import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.staticfiles import StaticFiles
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from telemetry.db.engine import migrate, open_engine
from telemetry.db.writer import QUEUE_SPANS, TelemetryWriter
from web import api, ingest, pages
from web.problems import on_http_error, on_invalid_query, problem
from web.security import SECURITY_HEADERS, SecurityMiddleware


def create_app(
    database_url: str,
    *,
    static_dir: Path | None = None,
    hosts: Iterable[str] = (),
    clock_ns: Callable[[], int] = time.time_ns,
    queue_spans: int = QUEUE_SPANS,
) -> FastAPI:
    """The app; its lifespan migrates and opens the database, and flushes the writer at the end.

    ``static_dir`` holds the bundled dashboard (default: the package's own); ``hosts`` are Host
    names answered besides loopback's; ``clock_ns`` is unix ns.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        engine = open_engine(database_url)
        await run_in_threadpool(migrate, engine)
        reader = open_engine(database_url, read_only=True)
        writer = TelemetryWriter(engine, clock_ns=clock_ns, queue_spans=queue_spans)
        writer.start()
        app.state.reader, app.state.writer = reader, writer
        try:
            yield
        finally:
            await run_in_threadpool(writer.stop)
            reader.dispose()
            engine.dispose()

    app = FastAPI(
        title="Starshade observatory",
        lifespan=lifespan,
        openapi_url="/api/openapi.json",
        docs_url=None,  # their pages load scripts from elsewhere
        redoc_url=None,
    )
    app.state.clock_ns = clock_ns
    app.state.bundle = pages.bundle_dir(static_dir)
    app.include_router(api.router)
    app.include_router(ingest.router)
    app.include_router(pages.router)
    if app.state.bundle is not None:
        app.mount("/static", StaticFiles(directory=app.state.bundle))
    app.add_exception_handler(HTTPException, on_http_error)
    app.add_exception_handler(RequestValidationError, on_invalid_query)
    app.add_exception_handler(Exception, _on_crash)
    app.add_middleware(SecurityMiddleware, hosts=tuple(hosts))
    return app


def _on_crash(_request: Request, _error: Exception) -> JSONResponse:
    """A defect of ours: the log has the traceback.  It is answered outside the middleware."""
    answer = problem(500, "internal_error")
    answer.headers.update(SECURITY_HEADERS)
    return answer
