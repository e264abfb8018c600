"""What a provider says went wrong, as one `ModelError` with the facts, in whatever form and by whatever way it came.

1. An error object is found wherever providers put it: under `error`, as `{type: error, error: {...}}`, as a FastAPI
   `detail`, as plain text. The code is the provider's own `code`, else its `type`, else `HTTP_<status>`.
2. Transient are 408, 409, 429 and 5xx, and, where no status came (an error event inside a stream), the codes that stand
   for those. A spent quota comes as 429 and is not transient. An `x-should-retry` of the provider goes before all this,
   but where the status (any other 4xx) says that the request is wrong: the same one would be refused again.
3. The refused place in the request is written one way, `messages[3].content[0]`, however the provider spelt it: in
   `param`, in a `loc` list, or in its text (`messages.3.content.0: ...`, `messages.[3].content`, `input[2]`).
4. What stands at that place is told by role, type, name and ids. Content is not quoted, and no key gets out: the texts
   given as secrets and whatever looks like a key are blotted out of every text.
"""

from __future__ import annotations

import math
import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import Factory, frozen

from quiesce.protocol.errors import ModelError
from quiesce.protocol.storable import clean_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from quiesce.protocol.events import JsonObject

__all__ = ["Circumstances", "malformed", "model_error", "position_in", "retry_after", "standing_at", "with_facts"]

Thing: TypeAlias = Any
"""JSON that nobody has looked at yet."""


@frozen
class Circumstances:
    """What is known of a failed request apart from the error object itself.

    `headers` are those of the response, with lower-case names; `now` is the time in seconds since the epoch, for a
    `retry-after` that names a date; `secrets` are texts that must not get out.
    """

    status: int | None = None
    headers: Mapping[str, str] = Factory(dict)
    now: float = 0.0
    secrets: tuple[str, ...] = ()


def model_error(
    error: Thing, around: Circumstances | None = None, *, code: str = "", body: JsonObject | None = None
) -> ModelError:
    """The error that a provider's error object, or its text, stands for.

    `code` is used where it names none; `body` is the request, for the words about the refused place.
    """
    around = around or Circumstances()
    told = _Told.of(error)
    status = told.status if around.status is None else around.status
    code = told.code or code or (f"HTTP_{status}" if status else "PROVIDER_ERROR")
    wait = retry_after(around.headers, around.now)
    request_id = next((around.headers[key] for key in _REQUEST_IDS if key in around.headers), told.request_id)
    position = told.position
    text = _sentence(_blotted(told.message, around.secrets), status, code, position, body)
    facts = _facts(request_id, wait)
    return ModelError(
        _blotted(text + facts, around.secrets),
        code=_blotted(code, around.secrets),
        transient=_is_transient(status, (code, told.type), around.headers),
        retry_after=wait,
        status=status,
        request_id=request_id and _blotted(request_id, around.secrets),
        position=position and _blotted(position, around.secrets),
    )


def with_facts(error: ModelError, around: Circumstances) -> ModelError:
    """An error that came inside a reply, with what the reply's headers told, and without secrets."""
    told = model_error(None, around)
    added = told.request_id if error.request_id is None else None
    return ModelError(
        _blotted(f"{error}{_facts(added, None)}", around.secrets),
        code=_blotted(error.code, around.secrets),
        transient=error.transient,
        retry_after=error.retry_after,
        status=error.status,
        request_id=(error.request_id and _blotted(error.request_id, around.secrets)) or added,
        position=error.position and _blotted(error.position, around.secrets),
    )


def malformed(words: str) -> ModelError:
    """A reply that breaks the dialect's rules. Another try may well give a sound one."""
    return ModelError(f"malformed reply: {words}", code="MALFORMED_REPLY", transient=True)


# --- the error object --------------------------------------------------------------------------------------------


@frozen
class _Told:
    """What an error object says."""

    message: str = ""
    code: str = ""
    type: str = ""
    status: int | None = None
    request_id: str | None = None
    position: str | None = None

    @classmethod
    def of(cls, error: Thing) -> _Told:
        outer, inner = _unwrapped(error)
        message = _message(inner)
        code, kind = inner.get("code"), inner.get("type")
        names = [name for name in (code, kind) if isinstance(name, str) and name and name != "error"]
        return cls(
            message=message,
            code=names[0] if names else "",
            type=names[-1] if names else "",
            status=code if type(code) is int and 400 <= code < 600 else None,  # noqa: PLR2004 - the range of HTTP errors
            request_id=_text_or_none(outer.get("request_id")) or _text_or_none(inner.get("request_id")),
            position=_position(inner, message),
        )


def _unwrapped(error: Thing) -> tuple[JsonObject, JsonObject]:
    """The outermost object, and the one inside that describes the fault."""
    outer = error if isinstance(error, dict) else {"message": error}
    inner = outer
    while (deeper := inner.get("error")) is not None:
        if not isinstance(deeper, dict):
            return outer, {"message": deeper, **{key: value for key, value in inner.items() if key != "error"}}
        inner = deeper
    if isinstance(inner.get("message"), dict):  # Mistral puts FastAPI's object there
        inner = {**inner, "message": None, **inner["message"]}
    return outer, inner


def _message(inner: JsonObject) -> str:
    said = inner.get("message") or inner.get("detail")
    if isinstance(said, list):  # FastAPI: one object per fault
        said = "; ".join(str(item.get("msg", item)) if isinstance(item, dict) else str(item) for item in said)
    return "" if said is None else str(said)


def _position(inner: JsonObject, message: str) -> str | None:
    param, detail = inner.get("param"), inner.get("detail")
    if isinstance(param, str) and param:
        return _spelt(param)
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        place = detail[0].get("loc")
        if isinstance(place, list):
            return _spelt(".".join(str(step) for step in place if step != "body")) or None
    return position_in(message)


def _text_or_none(value: Thing) -> str | None:
    return value if isinstance(value, str) and value else None


# --- the place in the request ------------------------------------------------------------------------------------

_STEP: Final = r"(?:\.?\[\d+\]|\.\d+|\.[A-Za-z_]\w*)"
_PLACE: Final = re.compile(rf"\b(?:messages|input|tools|system)(?:\.?\[\d+\]|\.\d+){_STEP}*")


def position_in(text: str) -> str | None:
    """The first place of a request that `text` names, written `messages[3].content[0]`; None if it names none."""
    found = _PLACE.search(text)
    return None if found is None else _spelt(found[0])


def _spelt(place: str) -> str:
    return re.sub(r"\.?\[(\d+)\]|\.(\d+)(?=\.|\[|$)", lambda step: f"[{step[1] or step[2]}]", place)


def standing_at(body: JsonObject, position: str) -> str:
    """What stands at `position` of the request `body`: the roles, types, names and ids on the way there.

    Steps that are no keys are passed over: some providers put the type of a block into the path.
    """
    return "; ".join(words for item in _on_the_way(body, position) if (words := _labels(item)))


def _on_the_way(body: JsonObject, position: str) -> Iterator[Thing]:
    at: Thing = body
    for step in re.findall(r"\w+", position):
        if isinstance(at, list) and step.isdigit() and int(step) < len(at):
            at = at[int(step)]
        elif isinstance(at, dict) and step in at:
            at = at[step]
        else:
            continue
        yield at


_LABELS: Final = ("role", "type", "name", "id", "call_id", "tool_call_id", "tool_use_id")
_LONGEST_LABEL: Final = 80


def _labels(item: Thing) -> str:
    if not isinstance(item, dict):
        return ""
    values = ((key, item.get(key)) for key in _LABELS)
    return ", ".join(f"{key} {value[:_LONGEST_LABEL]}" for key, value in values if isinstance(value, str) and value)


# --- whether, and when, to try again -----------------------------------------------------------------------------

_REQUEST_IDS: Final = ("x-request-id", "request-id")
_TRANSIENT_STATUS: Final = frozenset({408, 409, 429})
_CLIENT_FAULT: Final = 400
_SERVER_FAULT: Final = 500
_TRANSIENT: Final = frozenset(
    {
        "api_error",
        "connection",
        "internal_error",
        "internal_server_error",
        "overloaded",
        "overloaded_error",
        "rate_limit_error",
        "rate_limit_exceeded",
        "server_error",
        "server_overloaded",
        "service_unavailable",
        "timeout",
        "timeout_error",
        "vector_store_timeout",
    }
)
_FINAL: Final = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_error"})


def _is_transient(status: int | None, names: tuple[str, str], headers: Mapping[str, str]) -> bool:
    if status is not None and _CLIENT_FAULT <= status < _SERVER_FAULT and status not in _TRANSIENT_STATUS:
        return False
    told = {"true": True, "false": False}.get(headers.get("x-should-retry", "").strip().lower())
    if told is not None:
        return told
    if _FINAL.intersection(names):
        return False
    if status is None:
        return any(name.lower() in _TRANSIENT for name in names)
    return status in _TRANSIENT_STATUS or status >= _SERVER_FAULT


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """How many seconds the provider wants to be left alone, by `retry-after-ms` or `retry-after`; None if it says none.

    `retry-after` is a number of seconds or an HTTP date (RFC 9110, 10.2.3); `now` is in seconds since the epoch. A date
    that has passed is 0. What is neither is as good as absent.
    """
    for key, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        seconds = _number(headers.get(key, ""))
        if seconds is not None:
            return max(0.0, seconds * unit)
    try:
        when = parsedate_to_datetime(headers.get("retry-after", "")).timestamp()
    except (ValueError, OverflowError):
        return None
    return max(0.0, when - now)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


# --- the sentence ------------------------------------------------------------------------------------------------

_LONGEST_MESSAGE: Final = 600
_KEYS: Final = re.compile(
    r"""
      \b(?:sk|pk|rk|xai|gsk|pplx|nvapi|tgp|hf|r8|ghp|gho|ghs|github_pat|glpat|xox[abp])[-_][\w*.-]{8,}
    | \bAIza[\w*-]{8,}  # Google
    | \bya29\.[\w*.-]{8,}  # Google, OAuth
    | \b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9*]{8,}  # AWS
    | \beyJ[\w*-]{8,}(?:\.[\w*-]+)+  # a JSON web token
    | \b((?i:bearer)(?:[ =:+]|%20)+)[^\s'"]+  # whatever is said to be a bearer's
    """,
    re.VERBOSE,
)
"""What looks like a key; the group is what stays of it."""


def _sentence(message: str, status: int | None, code: str, position: str | None, body: JsonObject | None) -> str:
    what = code if status is None else f"HTTP {status}" if code == f"HTTP_{status}" else f"HTTP {status} {code}"
    place = ""
    if position is not None:
        standing = standing_at(body, position) if body else ""
        place = f" at {position}" + (f" ({standing})" if standing else "")
    message = " ".join(message.split())
    shown = message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]}..."
    return f"{what}{place}: {shown}" if shown else f"{what}{place}"


def _facts(request_id: str | None, wait: float | None) -> str:
    facts = [f"request id {request_id}"] if request_id else []
    facts += [] if wait is None else [f"retry after {wait:g} s"]
    return f" ({', '.join(facts)})" if facts else ""


def _blotted(text: str, secrets: tuple[str, ...]) -> str:
    for secret in secrets:
        text = text.replace(secret, "***")
    return clean_text(_KEYS.sub(r"\1***", text))
