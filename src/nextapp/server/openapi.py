"""The gateway's API in the words of OpenAPI 3.1; served at /openapi.json."""

from __future__ import annotations

from typing import Any

from nextapp import __version__

_WORDS = {"type": "string", "minLength": 1}
_RETRY = {
    "Retry-After": {
        "description": "Seconds to wait before the same request.",
        "schema": {"type": "integer", "minimum": 0},
    }
}


def _error(words: str, *codes: str, headers: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "description": words,
        "headers": headers or {},
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["error", "message"],
                    "properties": {"error": {"enum": list(codes)}, "message": _WORDS},
                }
            }
        },
    }


def _json(
    words: str, properties: dict[str, Any], optional: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "description": words,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": list(properties),
                    "properties": {**properties, **(optional or {})},
                }
            }
        },
    }


_SLOW = _error("The request did not arrive in time.", "too_slow")
_LARGE = _error("The body is larger than any of its kind.", "too_large")
_OFTEN = _error("Too many requests.", "too_many_requests", headers=_RETRY)
_STORAGE = _error(
    "Not now; nothing was stored. Send the same again later.",
    "storage", "busy", "no_round", "draining",
    headers=_RETRY,
)  # fmt: skip
_TOKEN = {"type": "string", "pattern": "^[A-Za-z0-9_-]{43}$"}
_TIME = {"type": "number", "description": "Seconds since 1970."}
_COUNT = {"type": "integer", "minimum": 0}
_DIGEST = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_ROUND_HEADERS = {
    "ETag": {
        "description": "The SHA-256 of the body before any compression, in hex, in quotes.",
        "schema": {"type": "string", "pattern": '^"[0-9a-f]{64}"$'},
    },
    "Nextapp-Round": {"description": "The round's number.", "schema": _COUNT},
}


def description() -> dict[str, Any]:
    """The document, made anew."""
    document = _document()
    for operations in document["paths"].values():
        for operation in operations.values():  # what every connection may be told
            operation["responses"].setdefault("400", _error("Not HTTP/1.1.", "bad_http"))
            operation["responses"].setdefault("408", _SLOW)
            operation["responses"].setdefault("431", _error("Too long a head.", "long_head"))
    return document


def _document() -> dict[str, Any]:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "nextapp gateway",
            "version": __version__,
            "description": "Broadcasts down, reports up. docs/protocol.md has the byte formats.",
        },
        "paths": {
            "/v1/enrol": {
                "post": {
                    "operationId": "enrol",
                    "summary": "Turn an enrolment code into a device token.",
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/json": {
                                "schema": {
                                    "type": "object",
                                    "required": ["code"],
                                    "properties": {
                                        "code": {
                                            "type": "string",
                                            "minLength": 1,
                                            "maxLength": 100,
                                            "pattern": "^[ -~]+$",
                                        }
                                    },
                                }
                            }
                        },
                    },
                    "responses": {
                        "201": _json(
                            "Enrolled. The token is shown this once.",
                            {"token": _TOKEN},
                            {"expires": _TIME},
                        ),
                        "400": _error("Not a JSON object with a code.", "bad_request", "bad_http"),
                        "403": _error("The code is unknown, used up or expired.", "bad_code"),
                        "408": _SLOW,
                        "413": _LARGE,
                        "429": _OFTEN,
                        "503": _STORAGE,
                    },
                }
            },
            "/v1/broadcast": {
                "get": {
                    "operationId": "broadcast",
                    "summary": "The current broadcast.",
                    "parameters": [
                        {
                            "name": "If-None-Match",
                            "in": "header",
                            "required": False,
                            "schema": {"type": "string"},
                        }
                    ],
                    "responses": {
                        "200": {
                            "description": "The broadcast, a safetensors file.",
                            "headers": _ROUND_HEADERS,
                            "content": {"application/octet-stream": {}},
                        },
                        "304": {
                            "description": "The broadcast in hand is the current one.",
                            "headers": _ROUND_HEADERS,
                        },
                        "429": _OFTEN,
                        "503": _STORAGE,
                    },
                }
            },
            "/v1/digest": {
                "get": {
                    "operationId": "digest",
                    "summary": "What the current broadcast is known by; fetch it from the origin.",
                    "responses": {
                        "200": _json(
                            "Round, SHA-256 and size of the broadcast before any compression.",
                            {"round": _COUNT, "sha256": _DIGEST, "n_bytes": _COUNT},
                        ),
                        "503": _STORAGE,
                    },
                }
            },
            "/v1/digests": {
                "get": {
                    "operationId": "digests",
                    "summary": "The digests of all broadcasts handed out here, to be compared.",
                    "responses": {
                        "200": _json(
                            "Pairs of round and SHA-256, the latest last.",
                            {
                                "digests": {
                                    "type": "array",
                                    "items": {
                                        "type": "array",
                                        "items": {"anyOf": [_COUNT, _DIGEST]},
                                        "minItems": 2,
                                        "maxItems": 2,
                                    },
                                }
                            },
                        ),
                        "429": _OFTEN,
                        "503": _STORAGE,
                    },
                }
            },
            "/v1/report": {
                "post": {
                    "operationId": "report",
                    "summary": "Send the report of a round.",
                    "security": [{"token": []}],
                    "requestBody": {
                        "required": True,
                        "content": {"application/octet-stream": {}},
                    },
                    "responses": {
                        "200": _json(
                            "The same bytes were stored before.",
                            {"status": {"const": "repeated"}},
                            {"renew": {"const": True}},
                        ),
                        "201": _json(
                            "Stored durably; it will be in the round's sum once.",
                            {"status": {"const": "accepted"}},
                            {"renew": {"const": True}},
                        ),
                        "400": _error(
                            "Not a report that this round takes.",
                            "bad_report",
                            "bad_http",
                            "wrong_round",
                            "wrong_mechanism",
                            "wrong_size",
                            "out_of_range",
                            "wrong_coins",
                        ),
                        "401": _error(
                            "No token, or one that is not known or has expired.",
                            "unknown_token",
                            "expired_token",
                        ),
                        "408": _SLOW,
                        "409": _error(
                            "Other bytes of this device count, or its token counts from the next "
                            "round on.",
                            "already_reported",
                            "new_token",
                        ),
                        "410": _error("The round has closed.", "round_closed"),
                        "413": _LARGE,
                        "429": _OFTEN,
                        "503": _STORAGE,
                    },
                }
            },
            "/v1/token": {
                "post": {
                    "operationId": "renew",
                    "summary": "Another token for this one; it counts once it is confirmed.",
                    "security": [{"token": []}],
                    "responses": {
                        "201": _json("The same for as long as it is open.", {"token": _TOKEN}),
                        "401": _error("A token that is not known.", "unknown_token"),
                        "409": _error("It is new in this round.", "renewed_already"),
                        "429": _OFTEN,
                        "503": _STORAGE,
                    },
                },
                "put": {
                    "operationId": "confirm",
                    "summary": "With the other token: from now on it counts, and the old one not.",
                    "security": [{"token": []}],
                    "responses": {
                        "200": _json(
                            "It counts.",
                            {"status": {"const": "renewed"}, "first_round": _COUNT},
                            {"expires": _TIME},
                        ),
                        "401": _error("A token that was not offered.", "unknown_token"),
                        "429": _OFTEN,
                        "503": _STORAGE,
                    },
                },
            },
            "/v1/round": {
                "get": {
                    "operationId": "round",
                    "summary": "The round at hand.",
                    "responses": {
                        "200": _json(
                            "How it stands.",
                            {
                                "round": _COUNT,
                                "opened": _TIME,
                                "deadline": _TIME,
                                "goal": _COUNT,
                                "minimum": _COUNT,
                                "n_reports": _COUNT,
                                "extensions": _COUNT,
                                "closed": {"type": "boolean"},
                            },
                        ),
                        "503": _STORAGE,
                    },
                }
            },
            "/v1/health": {
                "get": {
                    "operationId": "health",
                    "summary": "Whether reports can be taken.",
                    "responses": {
                        "200": _json("They can.", {"status": {"const": "ok"}, "round": _COUNT}),
                        "503": _STORAGE,
                    },
                }
            },
            "/openapi.json": {
                "get": {
                    "operationId": "openapi",
                    "summary": "This document.",
                    "responses": {
                        "200": {
                            "description": "This document.",
                            "content": {"application/json": {"schema": {"type": "object"}}},
                        }
                    },
                }
            },
        },
        "components": {
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token of /v1/enrol.",
                }
            }
        },
    }
