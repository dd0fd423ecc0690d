"""What a file for speedscope must be, in the words of JSON Schema.

Written from the description of the format that the npm package `speedscope` publishes (version 1.25.0), as far as
files of samples go; stricter than that, for a number of a frame must be a whole one.
"""

from __future__ import annotations

from typing import Any

import jsonschema  # type: ignore[import-untyped,unused-ignore]

_FRAME = {
    "type": "object",
    "required": ["name"],
    "properties": {"name": {"type": "string"}, "file": {"type": "string"}, "line": {"type": "number"}},
}
_PROFILE = {
    "type": "object",
    "required": ["type", "name", "unit", "startValue", "endValue", "samples", "weights"],
    "additionalProperties": False,
    "properties": {
        "type": {"const": "sampled"},
        "name": {"type": "string"},
        "unit": {"enum": ["bytes", "microseconds", "milliseconds", "nanoseconds", "none", "seconds"]},
        "startValue": {"type": "number"},
        "endValue": {"type": "number"},
        "samples": {"type": "array", "items": {"type": "array", "items": {"type": "integer", "minimum": 0}}},
        "weights": {"type": "array", "items": {"type": "number"}},
    },
}
SCHEMA: dict[str, Any] = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "additionalProperties": False,
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "name": {"type": "string"},
        "exporter": {"type": "string"},
        "activeProfileIndex": {"type": "number"},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {"frames": {"type": "array", "items": _FRAME}},
        },
        "profiles": {"type": "array", "items": _PROFILE},
    },
}


def check(document: Any) -> None:
    """Raise an error if a document is no such file."""
    jsonschema.validate(document, SCHEMA)
