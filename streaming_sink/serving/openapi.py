"""The OpenAPI description of the catalog: made from its endpoints, and from the types of their answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

_SCHEMAS = "#/components/schemas/"


@dataclass(frozen=True)
class Parameter:
    """What a caller states, in the path or after the question mark."""

    name: str
    kind: type
    says: str
    in_path: bool = True
    required: bool = True


@dataclass(frozen=True)
class Endpoint:
    """One path of the API."""

    path: str
    says: str
    answer: Any
    """The type of what it answers."""
    parameters: Sequence[Parameter] = ()


def describe(endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    """Return the description as OpenAPI 3.1 has it."""
    schemas: dict[str, Any] = {
        "Error": {
            "type": "object",
            "properties": {"error": {"type": "string", "description": "What is wrong, and what to do."}},
            "required": ["error"],
        }
    }
    paths = {it.path: {"get": _operation(it, schemas)} for it in endpoints}
    return {
        "openapi": "3.1.0",
        "info": {"title": "streaming-sink: catalog of buffered ingestion", "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    answer = TypeAdapter(endpoint.answer).json_schema(ref_template=_SCHEMAS + "{model}", mode="serialization")
    schemas.update(answer.pop("$defs", {}))
    if "title" in answer and answer.get("type") == "object":
        schemas[answer["title"]] = answer
        answer = {"$ref": _SCHEMAS + answer["title"]}
    error = {"content": {"application/json": {"schema": {"$ref": _SCHEMAS + "Error"}}}}
    return {
        "summary": endpoint.says,
        "parameters": [
            {
                "name": it.name,
                "in": "path" if it.in_path else "query",
                "required": it.required,
                "description": it.says,
                "schema": {"type": "integer" if it.kind is int else "string"},
            }
            for it in endpoint.parameters
        ],
        "responses": {
            "200": {"description": "the answer", "content": {"application/json": {"schema": answer}}},
            "400": {"description": "a parameter is missing or wrong", **error},
            "404": {"description": "there is no such dataset or path", **error},
            "503": {"description": "the store does not answer in time", **error},
        },
    }
