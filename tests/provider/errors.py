"""Error bodies as each provider shapes them, and its usual words for each status."""

from __future__ import annotations

__all__ = ["error_body", "refusal_body"]

_OPENAI = {
    400: ("invalid_request_error", None, "The request is not valid."),
    401: ("invalid_request_error", "invalid_api_key", "There is no valid API key in the request."),
    403: ("invalid_request_error", "unsupported_country_region_territory", "This is not open to you."),
    404: ("invalid_request_error", "model_not_found", "There is no such model or path."),
    413: ("invalid_request_error", "request_too_large", "The request is too large."),
    429: ("requests", "rate_limit_exceeded", "The limit of requests is reached. Try again later."),
    500: ("server_error", None, "The server had a fault while it worked on the request."),
    503: ("server_error", "overloaded", "The server is overloaded at the moment."),
}
_ANTHROPIC = {
    400: ("invalid_request_error", None, "The request is not valid."),
    401: ("authentication_error", None, "There is no valid API key in the request."),
    403: ("permission_error", None, "This API key may not do that."),
    404: ("not_found_error", None, "There is no such model or path."),
    413: ("request_too_large", None, "The request is too large."),
    429: ("rate_limit_error", None, "The limit of requests is reached. Try again later."),
    500: ("api_error", None, "The server had a fault while it worked on the request."),
    529: ("overloaded_error", None, "The service is overloaded at the moment."),
}


def error_body(dialect, variant, status, request_id, *, message=None, code=None, param=None):
    """The body of an HTTP error; what is not given has the usual words of the status."""
    table = _ANTHROPIC if dialect == "anthropic" else _OPENAI
    kind, usual_code, usual = table.get(status) or table[500 if status >= 500 else 400]
    message = usual if message is None else message
    if dialect == "anthropic":
        return {"type": "error", "error": {"type": code or kind, "message": message}, "request_id": request_id}
    if variant == "mistral":
        return {"object": "error", "message": message, "type": kind, "param": param, "code": code or usual_code}
    return {"error": {"message": message, "type": kind, "param": param, "code": code or usual_code}}


def refusal_body(dialect, variant, request_id, problems):
    """The body of a 400 for a request that breaks the contract; as services do, it names the first problem."""
    first = problems[0]
    if dialect == "anthropic":
        message = f"{first.dotted}: {first.text}" if first.path else first.text
    else:
        message = f"Invalid parameter: {first.bracketed}: {first.text}" if first.path else first.text
    return error_body(dialect, variant, 400, request_id, message=message, param=first.bracketed or None)
