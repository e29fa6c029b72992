"""JSON Schemas of Python types."""

import dataclasses
import enum
import types
import typing

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def schema_of(kind):
    """A JSON Schema as a dict: of a dict (itself), of a class that has model_json_schema() (pydantic) or json_schema(), of a
    dataclass, a TypedDict, an Enum, and of list[…], dict[str, …], tuple, Literal, Optional and Union of these.

    Raises TypeError for anything else.
    """
    if isinstance(kind, dict):
        return kind
    for name in ("model_json_schema", "json_schema"):
        if hasattr(kind, name):
            return getattr(kind, name)()
    if kind in _PLAIN:
        return {"type": _PLAIN[kind]}
    if kind is typing.Any:
        return {}
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return _object({field.name: schema_of(hints[field.name]) for field in dataclasses.fields(kind)})
    if typing.is_typeddict(kind):
        required = sorted(kind.__required_keys__)
        return _object({name: schema_of(hint) for name, hint in typing.get_type_hints(kind).items()}, required)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [schema_of(one) for one in arguments]}
    if origin is list or kind is list:
        return {"type": "array", "items": schema_of(arguments[0]) if arguments else {}}
    if origin is tuple and arguments and arguments[-1] is not Ellipsis:
        return {"type": "array", "prefixItems": [schema_of(one) for one in arguments], "items": False,
                "minItems": len(arguments)}
    if origin is dict and arguments[0] is str:
        return {"type": "object", "additionalProperties": schema_of(arguments[1])}
    raise TypeError(f"no JSON Schema is known of {kind!r}")


def _object(properties, required=None):
    return {"type": "object", "properties": properties, "additionalProperties": False,
            "required": list(properties) if required is None else required}
