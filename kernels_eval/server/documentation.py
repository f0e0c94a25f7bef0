"""The page `/docs`: routes, fields and replies of the OpenAPI schema, with a form that sends a request.

One HTML document made from the schema, without anything from another host: it works without internet. A server with a
token shows it to everybody, and judges only for requests that the reader gives the token to.
"""

import json
from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import Any

POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'"
"""Content security policy of the page: it talks to its own server alone."""
_FRAME = Path(__file__).with_name("documentation.html")
_METHODS = ("get", "post", "put", "patch", "delete")


def documentation(schema: Mapping[str, Any], *, has_token: bool) -> str:
    """Return the page of an OpenAPI schema; `has_token`: requests need a token, for which the page has a field."""
    info = schema["info"]
    parts = {
        "TITLE": escape(info["title"]),
        "VERSION": escape(info["version"]),
        "SUMMARY": escape(info.get("summary", "")),
        "TOKEN": "" if has_token else "hidden",
        "ROUTES": "\n".join(_routes(schema["paths"], schema["components"]["schemas"])),
        "SCHEMAS": "\n".join(_schema(name, value) for name, value in schema["components"]["schemas"].items()),
    }
    page = _FRAME.read_text(encoding="utf-8")
    for name, value in parts.items():
        page = page.replace(f"<!--{name}-->", value)
    return page


def _routes(paths: Mapping[str, Any], schemas: Mapping[str, Any]) -> Iterator[str]:
    for path, operations in paths.items():
        for method in _METHODS:
            if method in operations:
                yield _route(path, method, operations[method], schemas)


def _route(path: str, method: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    return (
        f"<section><h2><b>{method.upper()}</b> {escape(path)}</h2>"
        f"<p>{escape(operation.get('description', operation.get('summary', '')))}</p>"
        f"{_form(path, method, operation, schemas)}"
        f"<table><tr><th>status</th><th>meaning</th><th>content</th></tr>{''.join(_replies(operation))}</table></section>"
    )


def _form(path: str, method: str, operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> str:
    body, field = operation.get("requestBody"), "".join(map(_parameter, operation.get("parameters", ())))
    if body is not None:
        content = next(iter(body["content"].values()))
        example = json.dumps(_example(content["schema"], schemas), indent=2)
        field += (
            f'<p>Body: {_type(content["schema"])}</p><textarea rows="8" aria-label="body">{escape(example)}</textarea>'
        )
    return (
        f'<form data-method="{method.upper()}" data-path="{escape(path)}">{field}'
        "<button>Send</button><pre hidden></pre></form>"
    )


def _parameter(parameter: Mapping[str, Any]) -> str:
    """Return the field of a part of the path, a query parameter or a header."""
    name, required = escape(parameter["name"]), "required" if parameter.get("required") else ""
    optional = "" if required else " <i>optional</i>"
    return f'<label>{name}{optional} <input name="{name}" data-in="{escape(parameter["in"])}" {required}></label>'


def _example(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """Return an example of a value: the schema's own, else that of its first choice, of its items, of its fields."""
    if "$ref" in schema:
        return _example(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if schema.get("examples"):
        return schema["examples"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return _example(schema[key][0], schemas)
    if schema.get("type") == "array":
        return [_example(schema.get("items", {}), schemas)]
    properties = schema.get("properties", {})
    return {name: _example(properties[name], schemas) for name in schema.get("required", ()) if name in properties}


def _replies(operation: Mapping[str, Any]) -> Iterator[str]:
    for status, reply in operation["responses"].items():
        types = ", ".join(
            _type(content["schema"]) if content.get("schema") else escape(kind)
            for kind, content in reply.get("content", {}).items()
        )
        yield f"<tr><td>{escape(status)}</td><td>{escape(reply['description'])}</td><td>{types}</td></tr>"


def _schema(name: str, schema: Mapping[str, Any]) -> str:
    required = schema.get("required", ())
    rows = "".join(
        f"<tr><td>{escape(field)}{'' if field in required else ' <i>optional</i>'}</td><td>{_type(value)}</td>"
        f"<td>{escape(value.get('description', ''))}</td></tr>"
        for field, value in schema.get("properties", {}).items()
    )
    table = f"<table><tr><th>field</th><th>type</th><th>meaning</th></tr>{rows}</table>" if rows else _type(schema)
    return (
        f'<section id="{escape(name)}"><h3>{escape(name)}</h3><p>{escape(schema.get("description", ""))}</p>'
        f"{table}</section>"
    )


def _type(schema: Mapping[str, Any]) -> str:
    """Return the type of a value as HTML; other schemas are links."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(_type(choice) for choice in schema[key])
    if "enum" in schema or "const" in schema:
        return " | ".join(escape(json.dumps(value)) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type", "anything")))
