"""
Makes the files of the client that no one writes: the models, from the OpenAPI document of a service, and the blocking client, from
the one for asyncio. With --check it changes nothing and fails if a file is not what it makes.

    python3 generate.py [--openapi FILE] [--check]
"""

from __future__ import annotations

import argparse
import io
import json
import keyword
import re
import sys
import tokenize
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent / "src" / "corral"
SECTION = "#/components/schemas/"

Schema = dict[str, Any]


# Models


def models(document: Schema) -> str:
    schemas: dict[str, Schema] = document["components"]["schemas"]
    sent = _reachable(document, schemas)
    parts = [_order(name, schemas[name]) if name in sent else _model(name, schemas[name]) for name in sorted(schemas)]
    return "\n\n".join([_HEAD, *parts]) + "\n"


_HEAD = '''"""The objects of the service. Made by generate.py from its OpenAPI document; not to be changed by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, NotRequired, Required, Self, TypedDict

from . import _decode as d
'''


def _reachable(document: Schema, schemas: dict[str, Schema]) -> set[str]:
    """Names of those that are sent to the service."""
    bodies = [one.get("requestBody") for path in document["paths"].values() for one in path.values()]
    found: set[str] = set()
    waiting = re.findall(rf'"{SECTION}(\w+)"', json.dumps(bodies))
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += re.findall(rf'"{SECTION}(\w+)"', json.dumps(schemas[name]))
    return found


def _model(name: str, schema: Schema) -> str:
    required = set(schema.get("required", []))
    fields = [_Field(name, key, one, key in required) for key, one in schema.get("properties", {}).items()]
    lines = ["@dataclass(frozen=True, slots=True, kw_only=True)", f"class {name}:"]
    if "description" in schema:
        lines.append(f"    {_doc(schema['description'])}\n")
    for one in sorted(fields, key=lambda one: not one.required):
        lines.append(f"    {one.name}: {one.type}" + ("" if one.required else " = None"))
        if one.doc:
            lines.append(f"    {_doc(one.doc)}")
    lines += [
        "    raw: dict[str, Any] = field(repr=False, compare=False)",
        '    """Everything that the service sent, also what this client does not know."""',
        "",
        "    @classmethod",
        "    def from_json(cls, value: object) -> Self:",
        f'        o = d.as_object(value, "{name}")',
        "        return cls(",
        *[f"            {one.name}={one.reader}(o.get({json.dumps(one.key)}), \"{name}.{one.key}\")," for one in fields],
        "            raw=o,",
        "        )",
        "",
        "    @classmethod",
        "    def read(cls, value: object, where: str) -> Self:",
        "        return cls.from_json(value)",
    ]
    return "\n".join(lines) + "\n"


class _Field:
    def __init__(self, owner: str, key: str, schema: Schema, required: bool) -> None:
        self.key = key
        self.name = _snake(key)
        self.required = required
        self.doc: str = schema.get("description", "")
        self.type, self.reader = _typed(schema)
        if not required and not self.type.endswith("| None") and self.type != "Any":
            self.type, self.reader = f"{self.type} | None", f"d.optional({self.reader})"


def _typed(schema: Schema) -> tuple[str, str]:
    """Its type in Python, and what reads it."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(SECTION)
        return name, f"{name}.read"
    if "anyOf" in schema:
        some = schema["anyOf"]
        rest = [one for one in some if one.get("type") != "null"]
        if len(rest) < len(some):
            of, reader = _typed(rest[0] if len(rest) == 1 else {"anyOf": rest})
            return (f"{of} | None", f"d.optional({reader})") if of != "Any" else ("Any", reader)
        if all(one.get("type") == "string" for one in rest):
            return " | ".join(_typed(one)[0] for one in rest), "d.as_text"
        return "Any", "d.as_any"
    if isinstance(schema.get("type"), list):
        return _typed({"anyOf": [{**schema, "type": one} for one in schema["type"]]})
    # A value that a later service adds is no error, so it is read as text.
    if "enum" in schema or "const" in schema:
        values = schema.get("enum", [schema.get("const")])
        known = f"Literal[{', '.join(json.dumps(one) if isinstance(one, str) else repr(one) for one in values)}]"
        return (f"{known} | str", "d.as_text") if isinstance(values[0], str) else (known, "d.as_any")
    match schema.get("type"):
        case "string":
            return "str", "d.as_text"
        case "integer":
            return "int", "d.as_integer"
        case "number":
            return "float", "d.as_number"
        case "boolean":
            return "bool", "d.as_boolean"
        case "array":
            of, reader = _typed(schema.get("items", {}))
            return f"list[{of}]", f"d.list_of({reader})"
        case "object" if isinstance(schema.get("additionalProperties"), dict) and "properties" not in schema:
            of, reader = _typed(schema["additionalProperties"])
            return f"dict[str, {of}]", f"d.map_of({reader})"
        case "object":
            return "dict[str, Any]", "d.as_object"
    return "Any", "d.as_any"


def _order(name: str, schema: Schema) -> str:
    """What is sent, with the names of the service."""
    inner: list[str] = []
    lines = [f"class {name}(TypedDict, total=False):"]
    required = set(schema.get("required", []))
    for key, one in schema["properties"].items():
        if one.get("type") == "object" and "properties" in one:
            part = name.removesuffix("Order") + key[0].upper() + key[1:]
            inner.append(_order(part, one))
            of = part
        else:
            of = _sent(one)
        lines.append(f"    {key}: {'Required' if key in required else 'NotRequired'}[{of}]")
        if "description" in one:
            lines.append(f"    {_doc(one['description'])}")
    return "\n\n".join([*inner, "\n".join(lines) + "\n"])


def _sent(schema: Schema) -> str:
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_sent(one) for one in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return f"Literal[{', '.join(json.dumps(one) for one in schema.get('enum', [schema.get('const')]))}]"
    if schema.get("type") == "null":
        return "None"
    if schema.get("type") == "array":
        return f"list[{_sent(schema.get('items', {}))}]"
    return _typed(schema)[0]


def _snake(key: str) -> str:
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()
    return f"{name}_" if keyword.iskeyword(name) or name == "raw" else name


def _doc(text: str) -> str:
    whole = text if text.endswith(".") or text.endswith("?") else f"{text}."
    return '"""' + whole.replace("\\", "\\\\").replace('"""', "'''") + '"""'


# The blocking client

_LEFT_OUT = {"async", "await"}
_OTHER = {
    "_async": "_sync",
    "aio": "blocking",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "aclose": "close",
    "StopAsyncIteration": "StopIteration",
}


def blocking(source: str) -> str:
    """The same code without asyncio: names that begin with Async lose that, and nothing is awaited."""
    made: list[str] = []
    line, column = 1, 0
    lines = source.splitlines(keepends=True)
    skip = False
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        gap = _between(lines, (line, column), token.start)
        made.append(gap.lstrip(" ") if skip and "\n" not in gap else gap)
        skip = token.type == tokenize.NAME and token.string in _LEFT_OUT
        if not skip:
            made.append(_blocking_token(token))
        line, column = token.end
    text = "".join(made)
    head, rest = text.split("\n", 1)
    return f"# Made by generate.py from the same file of corral/_async; not to be changed by hand.\n{head}\n{rest}"


def _blocking_token(token: tokenize.TokenInfo) -> str:
    if token.type == tokenize.NAME:
        if token.string in _OTHER:
            return _OTHER[token.string]
        return re.sub(r"^(_?)Async(?=[A-Z])", r"\1", token.string)
    if token.type == tokenize.STRING:
        text = re.sub(r"\b(async|await) (?=[a-z])", "", token.string)
        return re.sub(r"\bAsync(?=[A-Z])", "", text)
    if token.type == tokenize.COMMENT:
        return re.sub(r"\bAsync(?=[A-Z])", "", token.string)
    return token.string


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    (line, column), (to_line, to_column) = start, end
    if line > len(lines):
        return ""
    if line == to_line:
        return lines[line - 1][column:to_column]
    middle = "".join(lines[line : to_line - 1])
    last = lines[to_line - 1][:to_column] if to_line <= len(lines) else ""
    return lines[line - 1][column:] + middle + last


def made_files(document: Schema | None) -> dict[Path, str]:
    made = {
        PACKAGE / "_sync" / source.name: blocking(source.read_text("utf-8"))
        for source in sorted((PACKAGE / "_async").glob("*.py"))
        if source.name != "__init__.py"
    }
    if document is not None:
        made[PACKAGE / "models.py"] = models(document)
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--openapi", metavar="FILE", help="what GET /openapi.json answers; without it the models stay")
    parser.add_argument("--check", action="store_true", help="fail if a file is not what would be made")
    given = parser.parse_args()
    document = None if given.openapi is None else json.loads(Path(given.openapi).read_text("utf-8"))
    stale = []
    for path, text in made_files(document).items():
        if path.exists() and path.read_text("utf-8") == text:
            continue
        stale.append(path.name)
        if not given.check:
            path.write_text(text, "utf-8")
            print(f"made {path.relative_to(PACKAGE.parent)}")
    if given.check and stale:
        print(f"not as generate.py makes them: {', '.join(stale)}; run python3 python/generate.py --openapi FILE", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
