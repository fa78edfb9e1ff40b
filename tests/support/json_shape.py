"""Whether a document of --json is what docs/reference/json-schema.json says, and has nothing more:
the part of JSON Schema that this file needs.
"""

import json
import re
from typing import Any

from tests.support.runs import ROOT

SCHEMA: dict[str, Any] = json.loads((ROOT / "docs/reference/json-schema.json").read_text())
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}


def check_shape(document: object) -> None:
    """Assert that a document has the form that is published."""
    _check(document, SCHEMA, "document")


def _check(value: Any, schema: dict[str, Any], place: str) -> None:
    if types := schema.get("type"):
        known = [types] if isinstance(types, str) else types
        allowed = tuple(kind for name in known for kind in _TYPES[name])
        is_flag = isinstance(value, bool)
        assert isinstance(value, allowed) and is_flag <= (bool in allowed), (place, value)
    assert value in schema.get("enum", [value]), (place, value)
    assert value == schema.get("const", value), (place, value)
    for rule in schema.get("allOf", ()):
        pattern = rule["if"]["properties"]["command"]["pattern"]
        if re.search(pattern, value["command"]):
            for name, inner in rule["then"]["properties"].items():
                _check(value[name], inner, name)
    if isinstance(value, dict) and (parts := schema.get("properties")):
        assert set(schema["required"]) == set(parts), place
        more = set(value) - set(parts)
        assert set(value) >= set(parts) and (not more or "additionalProperties" in schema), place
        for name, inner in parts.items():
            _check(value[name], inner, f"{place}.{name}")
    for one in value if isinstance(value, list) and "items" in schema else ():
        _check(one, schema["items"], f"{place}[]")
