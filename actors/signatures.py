"""A function's type hints as the arguments of a tool: their JSON schema, and the reader of what a model writes.

The parameters become, once, the fields of a pydantic model. The fields have neutral names and the parameters stand in
it as aliases, so that a parameter may have any name, `json` or `_private` included.

Imports pydantic: `@tool` imports this module at the first decoration, so that nobody else pays for it.
"""

from __future__ import annotations

import inspect
import typing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticSerializationError

from quiesce.actors.arguments import InvalidArguments
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.storable import check_json, clean_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from quiesce.actors.arguments import Reader
    from quiesce.protocol.events import JsonObject

__all__ = ["read_signature"]

_MAX_LINES: Final = 20
"""How many faults of one call a model is told; a union of many types can report hundreds."""

_EMPTY: Final = inspect.Parameter.empty

_REFUSED: Final = {
    inspect.Parameter.POSITIONAL_ONLY: "is positional-only; arguments are passed by name",
    inspect.Parameter.VAR_POSITIONAL: "takes any number of arguments; name each one",
    inspect.Parameter.VAR_KEYWORD: "takes arguments of any name; name each one",
}


@frozen
class _Parameter:
    """One parameter: its name, its type, and what Python passes if a model leaves it out."""

    name: str
    hint: object
    default: object


def read_signature(function: Callable[..., Any], tool: str, namespace: Mapping[str, Any]) -> tuple[JsonObject, Reader]:
    """The JSON schema of the arguments of `function`, and their reader.

    `namespace` holds names that its annotations may use besides those of its module. Raises `InvalidInput`, which names
    `tool` and the parameter, for parameters that no JSON can be passed to.
    """
    parameters = [
        _parameter(item, position, f"tool {tool!r}, parameter {item.name!r}", function, namespace)
        for position, item in enumerate(inspect.signature(function).parameters.values())
    ]
    try:
        model = _model(parameters)
        schema = _schema(model)
    except Exception as error:
        _blame_parameter(parameters, tool)
        raise InvalidInput(f"tool {tool!r}, parameters: no JSON schema: {_first_line(error)}") from error
    return schema, _reader(model, parameters)


# --- parameters --------------------------------------------------------------------------------------------------


def _parameter(
    item: inspect.Parameter, position: int, where: str, function: Callable[..., Any], namespace: Mapping[str, Any]
) -> _Parameter:
    if item.kind in _REFUSED:
        raise InvalidInput(f"{where}: {_REFUSED[item.kind]}")
    if item.annotation is not _EMPTY:
        return _Parameter(item.name, _evaluated(item, where, function, namespace), item.default)
    if position == 0 and item.name in {"self", "cls"}:
        raise InvalidInput(f"{where}: a method takes its object first; make a tool of the bound method")
    return _Parameter(item.name, Any, item.default)


def _evaluated(
    item: inspect.Parameter, where: str, function: Callable[..., Any], namespace: Mapping[str, Any]
) -> object:
    """The annotation as a type, also if its evaluation was postponed."""
    names: Any = SimpleNamespace(__annotations__={item.name: item.annotation})
    module: dict[str, Any] = getattr(inspect.unwrap(function), "__globals__", {})
    try:
        return typing.get_type_hints(names, module, dict(namespace), include_extras=True)[item.name]
    except Exception as error:
        words = f"annotation {item.annotation!r} cannot be evaluated: {_first_line(error)}"
        raise InvalidInput(f"{where}: {words}") from error


def _blame_parameter(parameters: list[_Parameter], tool: str) -> None:
    """Raise `InvalidInput` for the first parameter that has no schema even alone, if there is one."""
    for item in parameters:
        try:
            _schema(_model([item]))
        except Exception as error:
            words = f"no JSON schema for {item.hint!r}: {_first_line(error)}"
            raise InvalidInput(f"tool {tool!r}, parameter {item.name!r}: {words}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "") or type(error).__name__


# --- model and schema --------------------------------------------------------------------------------------------


def _model(parameters: list[_Parameter]) -> type[BaseModel]:
    fields: dict[str, Any] = {_column(position): _field(item) for position, item in enumerate(parameters)}
    return create_model("arguments", __config__=ConfigDict(extra="forbid"), **fields)


def _column(position: int) -> str:
    return f"p{position}"


def _field(item: _Parameter) -> tuple[object, object]:
    """A parameter as a pydantic field; `x: int = Field(3, description=...)` says the same as an annotation would."""
    if isinstance(item.default, FieldInfo):
        return typing.Annotated[item.hint, item.default], Field(alias=item.name)
    if item.default is _EMPTY:
        return item.hint, Field(alias=item.name)
    return item.hint, Field(default=item.default, alias=item.name)


class _PlainSchema(GenerateJsonSchema):
    """Without titles that only repeat names, and without defaults that are not JSON."""

    ignored_warning_kinds = GenerateJsonSchema.ignored_warning_kinds | {"non-serializable-default"}

    def field_title_should_be_set(self, schema: object) -> bool:  # noqa: ARG002 - for all schemas alike
        return False

    def encode_default(self, dft: object) -> object:
        encoded = super().encode_default(dft)
        try:
            check_json(encoded)
        except InvalidInput as error:
            raise PydanticSerializationError(str(error)) from None
        return encoded


def _schema(model: type[BaseModel]) -> JsonObject:
    found = model.model_json_schema(schema_generator=_PlainSchema)
    found.pop("title", None)
    return {"type": "object", "properties": {}, "required": [], **found, "additionalProperties": False}


# --- reading -----------------------------------------------------------------------------------------------------


def _reader(model: type[BaseModel], parameters: list[_Parameter]) -> Reader:
    """Gives each parameter its value. A default is the very object that Python would pass, not a copy of it."""
    columns = [
        (_column(position), item.name, _EMPTY if isinstance(item.default, FieldInfo) else item.default)
        for position, item in enumerate(parameters)
    ]

    def read(text: str, _raw: JsonObject) -> dict[str, Any]:
        found = _validated(model, text)
        given = found.model_fields_set
        return {
            name: getattr(found, column) if column in given or default is _EMPTY else default
            for column, name, default in columns
        }

    return read


def _validated(model: type[BaseModel], text: str) -> BaseModel:
    try:
        return model.model_validate_json(text)
    except ValidationError as error:
        raise InvalidArguments(clean_text("\n".join(_lines(error)))) from None
    except Exception as error:  # noqa: BLE001 - a validator of the tool's own types may raise anything
        raise InvalidArguments(clean_text(f"The arguments do not fit: {type(error).__name__}: {error}")) from None


def _lines(error: ValidationError) -> list[str]:
    """What was wrong, one line for each fault."""
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    lines = [_line(".".join(map(str, fault["loc"])), fault["msg"]) for fault in faults[:_MAX_LINES]]
    left = len(faults) - len(lines)
    return ["The arguments do not fit:", *lines, *([f"and {left} more"] if left else [])]


def _line(place: str, words: str) -> str:
    return " ".join(f"{place}: {words}".split() if place else words.split())
