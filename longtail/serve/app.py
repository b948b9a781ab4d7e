"""The server's application: routes, the guard around them, errors as sentences, the OpenAPI page."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

import longtail
from longtail.serve import schemas
from longtail.serve.guard import OPEN, Guard
from longtail.serve.limits import Keys, Refused
from longtail.serve.models import Models
from longtail.serve.routes import answered, predict, router

TITLE = "longtail"
ABOUT = "The few right labels of a short text, out of very many."
SECURITY = {"bearer": {"type": "http", "scheme": "bearer"}, "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"}}


def create_app(models: Models, keys: Keys | None = None) -> FastAPI:
    """The application; its lifespan starts the models and, at the end, waits until everything is answered."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        models.start()
        try:
            yield
        finally:
            await models.stop()

    # the pages that FastAPI makes of /openapi.json load their scripts from other hosts
    app = FastAPI(title=TITLE, description=ABOUT, version=longtail.__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.models = models
    app.include_router(router)
    app.add_middleware(Shortcut)
    app.add_middleware(Guard, limits=models.limits, metrics=models.metrics, keys=keys)
    app.add_exception_handler(Refused, refused)
    app.add_exception_handler(RequestValidationError, not_valid)
    app.add_exception_handler(HTTPException, not_found)
    app.openapi = lambda: openapi(app, models, keys)  # type: ignore[method-assign]
    return app


class Shortcut:
    """POST /predict, without FastAPI's way over routes and dependencies, which takes as long as all the rest of it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._route = next(route for route in router.routes if isinstance(route, APIRoute) and route.endpoint is predict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != self._route.path or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        scope["route"] = self._route
        request = Request(scope, receive)
        try:
            answer = await predict(request)
        except Refused as error:
            answer = await refused(request, error)
        await answer(scope, receive, send)


async def refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    answer = answered({"error": error.sentence}, error.status)
    answer.headers.update(error.headers)
    return answer


async def not_valid(_: Request, error: Exception) -> Response:
    """A part of the address that is not as it should be."""
    assert isinstance(error, RequestValidationError)
    return answered({"error": schemas.sentence(error.errors()[0])}, 422)


async def not_found(request: Request, error: Exception) -> Response:
    """No such path, or not in this way."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = ", ".join(sorted(_methods(request)))
        answer = answered({"error": f"{request.method} is not possible here; wanted {allowed}."}, 405)
        answer.headers["Allow"] = allowed
        return answer
    if error.status_code == 404:
        return answered({"error": "There is nothing here; / is the page, /openapi.json lists all routes."}, 404)
    return answered({"error": f"{error.detail}."}, error.status_code)


def _methods(request: Request) -> set[str]:
    """All methods of this path; one route knows its own alone."""
    found: set[str] = set()
    for route in router.routes:
        regex = getattr(route, "path_regex", None)
        if regex is not None and regex.match(request.url.path):
            found |= getattr(route, "methods", None) or set()
    return found


def openapi(app: FastAPI, models: Models, keys: Keys | None) -> dict[str, Any]:
    """The OpenAPI page, made once, with the limits of this server and its keys where it has some."""
    if app.openapi_schema:
        return app.openapi_schema
    made = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    components = made["components"]
    for body in (schemas.PredictBody, schemas.NewLabels):
        components["schemas"][body.__name__] = body.model_json_schema()
    schemas.with_limits(components["schemas"], models.limits)
    for name in ("HTTPValidationError", "ValidationError"):  # ours is Problem
        components["schemas"].pop(name, None)
    for methods in made["paths"].values():
        for route in methods.values():
            route["responses"] = {code: answer for code, answer in route["responses"].items() if "HTTPValidationError" not in str(answer)}
    if keys is not None:
        components["securitySchemes"] = SECURITY
        for path, methods in made["paths"].items():
            for route in methods.values():
                route["security"] = [] if path in OPEN else [{name: []} for name in SECURITY]
    app.openapi_schema = made
    return made
