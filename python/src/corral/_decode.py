"""Reads JSON of the service into models. A field that is unknown is kept in `raw`; one that is missing or has another type is reported."""

from __future__ import annotations

from typing import Any, Callable, TypeVar

from .errors import ProtocolError

T = TypeVar("T")
Reader = Callable[[Any, str], T]


def wrong(where: str, what: str) -> ProtocolError:
    return ProtocolError(f"{where} in the answer is not {what}: is the service another version?")


def as_object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise wrong(where, "an object")
    return value


def as_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise wrong(where, "text")
    return value


def as_integer(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(where, "a whole number")
    return value


def as_number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise wrong(where, "a number")
    return value


def as_boolean(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        raise wrong(where, "true or false")
    return value


def as_any(value: Any, where: str) -> Any:
    return value


def optional(reader: Reader[T]) -> Reader[T | None]:
    return lambda value, where: None if value is None else reader(value, where)


def list_of(reader: Reader[T]) -> Reader[list[T]]:
    def read(value: Any, where: str) -> list[T]:
        if not isinstance(value, list):
            raise wrong(where, "a list")
        return [reader(one, where) for one in value]

    return read


def map_of(reader: Reader[T]) -> Reader[dict[str, T]]:
    return lambda value, where: {name: reader(one, where) for name, one in as_object(value, where).items()}
