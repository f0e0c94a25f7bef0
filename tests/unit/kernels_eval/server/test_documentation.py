"""The page /docs: all routes and fields, nothing from another host, open where a token is set."""

import re

from kernels_eval.server.documentation import documentation

SCHEMA = {
    "info": {"title": "judge <1>", "version": "7", "summary": "Judges & more."},
    "paths": {
        "/eval": {
            "post": {
                "description": "Judge one kernel.",
                "requestBody": {
                    "content": {
                        "application/json": {
                            "schema": {"anyOf": [{"$ref": "#/components/schemas/Request"}, {"type": "null"}]},
                        }
                    }
                },
                "responses": {
                    "200": {
                        "description": "The verdict.",
                        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Verdict"}}},
                    },
                    "429": {"description": "The queue is <b>full</b>."},
                },
            }
        },
        "/health": {"get": {"summary": "Health", "responses": {"200": {"description": "Alive."}}}},
    },
    "components": {
        "schemas": {
            "Request": {
                "required": ["source"],
                "examples": [{"source": "a < b"}],
                "properties": {"source": {"type": "string", "description": "Python."}},
            },
            "Verdict": {
                "properties": {
                    "status": {"enum": ["correct", "rejected"]},
                    "turns": {"type": "array", "items": {"type": "integer"}},
                }
            },
        }
    },
}


def test_routes_fields_and_replies_are_shown() -> None:
    page = documentation(SCHEMA, has_token=False)
    assert [re.sub(r"<.*?>", "", heading) for heading in re.findall(r"<h2>(.*?)</h2>", page)] == [
        "POST /eval",
        "GET /health",
    ]
    assert 'Body: <a href="#Request">Request</a> or null' in page
    assert '<section id="Request">' in page
    assert "<td>source</td><td>string</td><td>Python.</td>" in page
    assert "status <i>optional</i></td><td>&quot;correct&quot; | &quot;rejected&quot;" in page
    assert "list of integer" in page
    assert "&quot;source&quot;: &quot;a &lt; b&quot;" in page


def test_what_the_schema_says_is_text_and_not_markup() -> None:
    page = documentation(SCHEMA, has_token=False)
    assert "judge &lt;1&gt;" in page
    assert "The queue is &lt;b&gt;full&lt;/b&gt;." in page


def test_the_page_loads_nothing() -> None:
    page = documentation(SCHEMA, has_token=True)
    assert re.findall(r"<(?:link|img|iframe)|src=|https?://|url\(|@import", page) == []
    assert "<!--" not in page


def test_the_field_for_the_token_is_shown_where_there_is_one() -> None:
    assert '<p id="token" >' in documentation(SCHEMA, has_token=True)
    assert '<p id="token" hidden>' in documentation(SCHEMA, has_token=False)


def test_parts_of_the_path_and_query_parameters_have_a_field() -> None:
    operation = {
        "parameters": [{"name": "job", "in": "path", "required": True}, {"name": "limit", "in": "query"}],
        "responses": {},
    }
    page = documentation({**SCHEMA, "paths": {"/jobs/{job}": {"get": operation}}}, has_token=False)
    assert '<label>job <input name="job" data-in="path" required></label>' in page
    assert '<label>limit <i>optional</i> <input name="limit" data-in="query" ></label>' in page
