"""Bodies of requests and answers; the OpenAPI page is made of these."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from longtail.serve.limits import Limits, Refused

B = TypeVar("B", bound="Body")
# no control characters, and something besides spaces
PLAIN = r"^[^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*[^\x00-\x1f\x7f\x85\s][^\x00-\x08\x0b\x0c\x0e-\x1f\x7f]*$"
TEXT = {"minLength": 1, "pattern": PLAIN}
MAX_ECHOED = 40  # letters of a wrong name that an answer repeats


class Body(BaseModel):
    """A body of a request, taken literally: "5" is no number, and a name that is not known is a mistake."""

    model_config = ConfigDict(strict=True, extra="forbid")


class PredictBody(Body):
    """One text or many."""

    text: str | None = Field(None, description="One text.", examples=["mario kart double dash"])
    texts: list[str] | None = Field(None, description="Many texts, in place of `text`.", examples=[["mario kart", "zelda"]])
    k: int = Field(5, ge=1, description="Labels a text, at most.")
    minimum_score: float = Field(0.0, ge=0, le=1, allow_inf_nan=False, description="Labels with a lower score are left out.")
    leave_out: list[int] = Field([], description="Ids of labels that are no answer.")
    prefix: str | None = Field(None, description="Only labels whose text begins so, among the best 1,000.")
    model: str | None = Field(None, description="Its name, where the server has several; otherwise the first.")

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["text"], "properties": {"text": {"type": "string"}, "texts": {"type": "null"}}},
                {"required": ["texts"], "properties": {"texts": {"type": "array"}, "text": {"type": "null"}}},
            ],
            "examples": [{"text": "mario kart double dash", "k": 5}, {"texts": ["mario kart", "zelda"], "k": 3, "minimum_score": 0.1}],
        },
    )


class NewLabels(Body):
    """Texts of labels that the model shall know from now on."""

    texts: list[str] = Field(description="One text a label.", examples=[["racing games for four players"]])
    model: str | None = Field(None, description="Its name, where the server has several; otherwise the first.")


class Label(BaseModel):
    id: int
    text: str
    score: float
    group: str = Field(description="head, torso, tail or unseen, by the number of its training rows.", examples=["tail"])


class Labels(BaseModel):
    labels: list[Label] = Field(description="Best first.")


class Predicted(BaseModel):
    model: str
    predictions: list[Labels] = Field(description="One for each text, in their order.")


class KnownLabel(BaseModel):
    id: int
    text: str
    group: str
    training_rows: int


class FoundLabels(BaseModel):
    labels: list[KnownLabel]
    next: int | None = Field(description="What to give as `after` to see the next ones; null at the end.")


class Added(BaseModel):
    model: str
    ids: list[int] = Field(description="Ids of the new labels, in the order of their texts.")


class Removed(BaseModel):
    model: str
    removed: int


class Node(KnownLabel):
    distance: int = Field(description="Edges from the label asked for.")


class Edge(BaseModel):
    source: int
    target: int
    weight: float


class Graph(BaseModel):
    kind: str
    nodes: list[Node]
    edges: list[Edge]


class Part(BaseModel):
    name: str = Field(description="Part of the label's vector.", examples=["text"])
    share: float
    brings: float = Field(description="To the evidence.")


class Token(BaseModel):
    name: str
    brings: float
    in_label: bool = Field(description="It stands in the label's text as well.")


class Row(BaseModel):
    text: str
    cosine: float


class Step(BaseModel):
    label: int
    text: str
    weight: float


class Reasons(BaseModel):
    text: str
    label: int
    label_text: str
    score: float
    place: int | None = Field(description="Among the predictions, from 1.")
    evidence: float = Field(description="`parts` and `bias` add up to it, and so do `tokens` and `rest`.")
    bias: float
    parts: list[Part]
    tokens: list[Token]
    rest: float
    rows: list[Row] = Field(description="Training rows with the label that are most like the text, where the model folder keeps them.")
    path: list[Step] = Field(description="Path in the label graph, from a label that was predicted to this one.")


class ModelSummary(BaseModel):
    name: str
    version: int = Field(description="1 at the start, one more with every reload.")
    loaded_at: str
    labels: int
    recipe: str
    augmentation: str
    has_graph: bool


class ModelList(BaseModel):
    models: list[ModelSummary]


class ModelCard(ModelSummary):
    about: dict[str, Any]
    metrics: dict[str, float]
    history: list[dict[str, Any]]


class Status(BaseModel):
    status: str


class Problem(BaseModel):
    """Every answer of 4xx and 5xx."""

    error: str = Field(description="One sentence.", examples=["k came as 0; wanted 1 to 1,000."])


def parsed(kind: type[B], body: bytes) -> B:
    """The body, or what is wrong with it."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_context=True)[0]
        raise Refused(400 if problem["type"] == "json_invalid" else 422, sentence(problem, list(kind.model_fields))) from None


def sentence(problem: Any, known: Sequence[str] = ()) -> str:
    """One problem that pydantic found, in one sentence; values are named where they are numbers, never texts."""
    where = ".".join(str(part)[:MAX_ECHOED] for part in problem["loc"] if part not in ("query", "path", "body")) or "The body"
    special = {
        "json_invalid": lambda: f"The body is not JSON ({problem['ctx']['error']}).",
        "extra_forbidden": lambda: f"The body has {where!r}, which is not known; wanted {', '.join(known)}.",
        "missing": lambda: f"{where} is missing.",
    }
    if problem["type"] in special:
        return special[problem["type"]]()
    value = problem.get("input")
    came = f" came as {value}" if isinstance(value, (int, float)) and len(str(value)) < MAX_ECHOED else " came as something else"
    message = str(problem["msg"])
    return f"{where}{came}; wanted {message.removeprefix('Input should be ').removesuffix('.')}."


def with_limits(schemas: dict[str, Any], limits: Limits) -> None:
    """Write the limits of this server into the schemas of its OpenAPI page."""
    text = {**TEXT, "maxLength": limits.text_characters}
    predict, labels = schemas["PredictBody"]["properties"], schemas["NewLabels"]["properties"]
    predict["text"]["anyOf"][0] |= text
    for many, limit in ((predict["texts"]["anyOf"][0], limits.texts), (labels["texts"], limits.new_labels)):
        many |= {"minItems": 1, "maxItems": limit}
        many["items"] |= text
    predict["k"]["maximum"] = limits.k
    predict["leave_out"] |= {"maxItems": limits.k}
    predict["leave_out"]["items"] |= {"minimum": 0}
