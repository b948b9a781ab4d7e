"""The routes, one function each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Any, TypeVar

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel

from longtail.core.errors import LongtailError
from longtail.serve import schemas
from longtail.serve.batching import PredictRequest
from longtail.serve.limits import Limits, Refused, check_texts, read_body
from longtail.serve.models import Models

T = TypeVar("T")
MAX_SHOWN = 200  # labels of a page, and of a graph
MAX_LABEL_ID = (1 << 31) - 1
PREFIX_CANDIDATES = 1000  # best labels among which those with a prefix are searched
JSON = "application/json"
PAGE = {"/": ("page.html", "text/html"), "/page.js": ("page.js", "text/javascript"), "/page.css": ("page.css", "text/css")}
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; img-src 'self' data:; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",  # an address may have a text in it
    "Cache-Control": "no-cache",
}

router = APIRouter()
ModelName = Annotated[str | None, Query(description="Its name, where the server has several; otherwise the first.")]


def responses(answer: type[BaseModel], *problems: int, status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Responses of a route, for the OpenAPI page."""
    found: dict[int | str, dict[str, Any]] = {status: {"model": answer, "description": "The answer."}}
    for code in (*problems, 401, 500, 503):
        found[code] = {"model": schemas.Problem, "description": PROBLEMS[code]}
    return found


PROBLEMS = {
    400: "The body is not JSON.",
    401: "No key, or one that is not known.",
    403: "Another site's page sent it.",
    404: "No such model or label.",
    409: "The folder could not be loaded; the version before goes on.",
    413: "The body is too long.",
    415: "The body came as another type than JSON.",
    422: "Something in it is missing, of another kind, or outside the limits.",
    429: "Too many wait already; Retry-After says when to try again.",
    500: "Something broke inside the server.",
    503: "It took too long, or the server is shutting down.",
}


def body_of(kind: type[schemas.Body]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {JSON: {"schema": {"$ref": f"#/components/schemas/{kind.__name__}"}}}}}


@router.post(
    "/predict", responses=responses(schemas.Predicted, 400, 403, 404, 413, 415, 422, 429), openapi_extra=body_of(schemas.PredictBody)
)
async def predict(request: Request) -> Response:
    """The best labels of a text, or of many.

    Requests that come at the same time are answered by one call of the model.
    """
    models: Models = request.app.state.models
    return Response(await in_time(predicted(request, models), models.limits), media_type=JSON)


async def predicted(request: Request, models: Models) -> bytes:
    asked = schemas.parsed(schemas.PredictBody, await read_body(request, models.limits.body_bytes))
    served = models[asked.model]
    return await served.ask(predict_request(asked, models.limits, served.n_labels))


def predict_request(asked: schemas.PredictBody, limits: Limits, n_labels: int) -> PredictRequest:
    """The request of a body that is within the limits."""
    if (asked.text is None) == (asked.texts is None):
        raise Refused(422, f"{'Neither text nor texts came' if asked.text is None else 'Both text and texts came'}; wanted one of them.")
    texts = asked.texts if asked.texts is not None else [asked.text or ""]
    check_texts(texts, limits)
    if asked.k > limits.k:
        raise Refused(422, f"k came as {asked.k}; wanted 1 to {limits.k:,}.")
    if len(asked.leave_out) > limits.k:
        raise Refused(422, f"leave_out came with {len(asked.leave_out):,} labels; wanted at most {limits.k:,}.")
    for label in asked.leave_out:
        if not 0 <= label < n_labels:
            raise Refused(404, f"leave_out has label {label}; the model has 0 to {n_labels - 1}.")
    leave_out = frozenset(asked.leave_out)
    n_candidates = min(n_labels, max(asked.k, PREFIX_CANDIDATES if asked.prefix else 0) + len(leave_out))
    if len(texts) * n_candidates > limits.answers:
        raise Refused(
            422,
            f"{len(texts):,} texts with {n_candidates:,} labels each came; wanted at most {limits.answers:,} labels in all, "
            "so fewer texts.",
        )
    return PredictRequest(texts, asked.k, asked.minimum_score, leave_out, asked.prefix or None, n_candidates)


@router.get("/labels", responses=responses(schemas.FoundLabels, 404, 422, 429))
async def find_labels(
    request: Request,
    query: Annotated[str, Query(max_length=200, description="Letters that the label's text holds.", examples=["kart"])] = "",
    after: Annotated[int, Query(ge=-1, le=MAX_LABEL_ID, description="The `next` of the page before; -1 for the first.")] = -1,
    size: Annotated[int, Query(ge=1, le=MAX_SHOWN, description="Labels a page.")] = 50,
    model: ModelName = None,
) -> Response:
    """Labels by letters of their text, or all of them, a page at a time."""
    models: Models = request.app.state.models
    return answered(await in_time(models.in_background(models[model].find_labels, query, after, size), models.limits))


@router.post(
    "/labels",
    status_code=201,
    responses=responses(schemas.Added, 400, 403, 404, 413, 415, 422, status=201),
    openapi_extra=body_of(schemas.NewLabels),
)
async def add_labels(request: Request) -> Response:
    """New labels by their texts, without training. When the answer comes they are in the model folder."""
    models: Models = request.app.state.models
    asked = schemas.parsed(schemas.NewLabels, await in_time(read_body(request, models.limits.body_bytes), models.limits))
    served = models[asked.model]
    if not 0 < len(asked.texts) <= models.limits.new_labels:
        raise Refused(422, f"{len(asked.texts):,} texts came; wanted 1 to {models.limits.new_labels:,} new labels.")
    check_texts(asked.texts, models.limits)
    return answered({"model": served.name, "ids": await understood(models.add_labels(served, asked.texts))}, 201)


@router.delete("/labels/{label}", responses=responses(schemas.Removed, 403, 404, 422))
async def remove_label(request: Request, label: int, model: ModelName = None) -> Response:
    """Never answer with this label again."""
    models: Models = request.app.state.models
    served = models[model]
    await understood(models.remove_label(served, label))
    return answered({"model": served.name, "removed": label})


@router.get("/explain", responses=responses(schemas.Reasons, 404, 422, 429))
async def explain(
    request: Request,
    text: Annotated[
        str, Query(description="The text that was predicted.", examples=["mario kart double dash"], json_schema_extra=dict(schemas.TEXT))
    ],
    label: Annotated[int, Query(ge=0, le=MAX_LABEL_ID, description="The id of the label.")],
    model: ModelName = None,
) -> Response:
    """Why a label is an answer to a text."""
    models: Models = request.app.state.models
    served = models[model]
    check_texts([text], models.limits)
    return answered(await understood(in_time(models.in_background(served.explain, text, label), models.limits)))


@router.get("/graph/{label}", responses=responses(schemas.Graph, 404, 422, 429))
async def graph(
    request: Request,
    label: int,
    nodes: Annotated[int, Query(ge=1, le=MAX_SHOWN, description="Labels to show, at most.")] = 30,
    model: ModelName = None,
) -> Response:
    """The label graph around a label: those that the strongest paths lead to."""
    models: Models = request.app.state.models
    return answered(await in_time(models.in_background(models[model].neighbourhood, label, nodes), models.limits))


@router.get("/models", responses=responses(schemas.ModelList))
async def list_models(request: Request) -> Response:
    """The models of this server."""
    models: Models = request.app.state.models
    return answered({"models": [served.summary() for served in models.all()]})


@router.get("/models/{name}", responses=responses(schemas.ModelCard, 404))
async def model_card(request: Request, name: str) -> Response:
    """The model card: how a model was trained and on which data, how good it is, and every epoch of its training."""
    return answered(request.app.state.models[name].card())


@router.post("/models/{name}/reload", responses=responses(schemas.ModelSummary, 403, 404, 409))
async def reload_model(request: Request, name: str) -> Response:
    """Load the folder anew. Requests are answered all the while, by the version before until the new one takes over."""
    return answered((await request.app.state.models.reload(name)).summary())


@router.get("/healthz", responses={200: {"model": schemas.Status}})
async def health() -> Response:
    """Liveness: the process answers."""
    return answered({"status": "alive"})


@router.get("/readyz", responses={200: {"model": schemas.Status}, 503: {"model": schemas.Problem, "description": PROBLEMS[503]}})
async def readiness(request: Request) -> Response:
    """Readiness: requests are taken."""
    if not request.app.state.models.ready:
        raise Refused(503, "The server is shutting down.")
    return answered({"status": "ready"})


@router.get("/metrics", responses={200: {"content": {"text/plain": {}}}}, response_class=Response)
async def metrics(request: Request) -> Response:
    """Counters and gauges for Prometheus."""
    return Response(request.app.state.models.metrics_text(), media_type="text/plain; version=0.0.4")


def page_route(file: str, kind: str) -> Callable[[], Awaitable[Response]]:
    content = (Path(__file__).parent / file).read_bytes()

    async def page() -> Response:
        return Response(content, media_type=kind, headers=PAGE_HEADERS)

    return page


for path, (file, kind) in PAGE.items():
    router.add_api_route(path, page_route(file, kind), include_in_schema=False)


def answered(value: Any, status: int = 200) -> Response:
    return Response(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY), status, media_type=JSON)


async def in_time(answer: Awaitable[T], limits: Limits) -> T:
    """The answer, or a refusal when it takes too long."""
    try:
        async with asyncio.timeout(limits.seconds):
            return await answer
    except TimeoutError:
        raise Refused(503, f"No answer within {limits.seconds:g} seconds; try again later.", {"Retry-After": "1"}) from None


async def understood(answer: Awaitable[T]) -> T:
    """The answer; an error of longtail's is a refusal of the request."""
    try:
        return await answer
    except LongtailError as error:
        raise Refused(422, str(error)) from None
