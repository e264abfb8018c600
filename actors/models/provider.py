"""`ProviderModel`: what the models on the official SDKs have in common.

1. Each dialect's module renders requests and parses replies; the SDK knows addresses, keys, headers and connections.
   Nothing is in between but the few fields of a request that are neither messages nor tools.
2. Whatever goes wrong is one `ModelError` with the facts. It is raised outside of the handler that saw the SDK's error,
   so that no key comes out with a traceback: an SDK's error holds the whole request.
3. A history is rendered once: each session has its renderer, which adds what is new.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from attrs import evolve, frozen

from quiesce.actors.models.reading import ReplyReader, read_reply
from quiesce.actors.options import check_count, check_instance, check_text
from quiesce.protocol.dialects.faults import with_facts
from quiesce.protocol.dialects.labels import wire_names
from quiesce.protocol.dialects.profile import PROFILES, Profile
from quiesce.protocol.errors import InvalidInput, ModelError
from quiesce.protocol.storable import check_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from quiesce.actors.models.clients import Sdk
    from quiesce.protocol.dialects.replies import ReplyStream
    from quiesce.protocol.events import JsonObject
    from quiesce.protocol.model import Delta, ModelRequest, Visible

__all__ = ["Dialect", "ProviderModel"]

_SESSIONS: Final = 256
"""How many sessions' rendered histories are kept."""


class _Renderer(Protocol):
    def render(self, messages: Sequence[Visible]) -> list[JsonObject]: ...


class _Request(Protocol):
    def __call__(self, asked: ModelRequest, profile: Profile, messages: list[JsonObject] | None) -> JsonObject: ...


@frozen
class Dialect:
    """A dialect as an adapter needs it: what its package renders and parses with, and where its requests go."""

    renderer: Callable[[Profile], _Renderer]
    request: _Request
    stream: Callable[[], ReplyStream]
    path: str


class ProviderModel:
    """A model behind the API of a provider, or of any server that speaks its dialect.

    One model may serve any number of agents at a time, in one Trio program. Close it after them, with `aclose` or by
    using it as an async context manager.

    Args:
        name: the model's name, as the server knows it.
        base_url: the server, if it is not the provider's own (or the one that the SDK's environment variable names).
        profile: what the server accepts (`protocol.dialects.PROFILES`); by default that of the vendor whose host it
            is, and of any other host what servers of the dialect have in common (for Chat Completions `compatible`).
            Its `model` is filled in.
        api_key: by default from the SDK's environment variable. It is never shown, logged or stored.
        timeout: seconds without a word from the server after which a request fails; by default the SDK's ten minutes.
        max_tokens: the most that one answer may have.
        temperature: how much chance there is in an answer; by default the server decides.
        extra_body: more fields of the request, as the server names them; None takes out a field that would be there.
        client: a client of the SDK to use instead of one of our own. Whoever made it closes it.

    Raises:
        InvalidInput: a value cannot be, the SDK is not installed, or there is no key.

    """

    sdk: ClassVar[Sdk]
    dialect: ClassVar[Dialect]
    profiles: ClassVar[Mapping[str, str]]
    """The name of a host, which stands for those below it too -> the profile of the server there; "" for all others."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        profile: Profile | None = None,
        api_key: str | None = None,
        timeout: float | None = None,
        max_tokens: int | None = None,
        temperature: float | None = None,
        extra_body: Mapping[str, Any] | None = None,
        client: Any = None,  # noqa: ANN401 - of an SDK that may not be installed
    ) -> None:
        _check_name(name)
        _check_address(base_url, api_key)
        _check_number("timeout", timeout, above=0)
        _check_number("temperature", temperature)
        if max_tokens is not None:
            check_count("max_tokens", max_tokens)
        if profile is not None:
            check_instance("profile", profile, Profile)
        self._limit = max_tokens
        self._extra = {"temperature": temperature, **_extra_fields(extra_body)}
        if client is None:
            self._api = self.sdk.connect(base_url=base_url, api_key=api_key, timeout=timeout)
        else:
            self._api = self.sdk.borrow(client, {"base_url": base_url, "api_key": api_key, "timeout": timeout})
        self.name = name
        self.profile = self._profile(profile)
        self.provider = self.profile.provider
        self._renderers: OrderedDict[str, _Renderer] = OrderedDict()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.provider}>"

    async def aclose(self) -> None:
        """Close the connections, unless the client is the user's. Requests that are on their way fail."""
        await self._api.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    # --- requests ----------------------------------------------------------------------------------------------

    async def respond(self, request: ModelRequest, emit: Callable[[Delta], None]) -> None:
        """Answer `request`, streamed. Raises `ModelError`, with the facts that the provider gave.

        Cancelled, it closes the connection at once.
        """
        if self._api.is_closed:
            raise ModelError(f"{self!r} is closed", code="CLOSED")
        names = wire_names((tool.name for tool in request.tools), self.profile)
        failure = await self._exchange(self._body(request), ReplyReader(self.dialect.stream(), names, emit))
        if failure is not None:
            raise failure

    async def _exchange(self, body: JsonObject, reader: ReplyReader) -> ModelError | None:
        """Send the request and read the reply; gives back what went wrong, if anything did (rule 2)."""
        api, headers = self._api, dict[str, str]()
        try:
            response = await api.post(self.dialect.path, body)
            headers.update(response.headers)
            await read_reply(response, reader)
        except api.errors as error:
            return api.fault(error, body)
        except ModelError as error:
            return with_facts(error, api.around(headers))
        return None

    def _body(self, request: ModelRequest) -> JsonObject:
        messages = self._renderer(request.session_id).render(request.messages)
        asked = self.dialect.request(request, self.profile, messages)
        body = {"model": self.name, **asked, **self._options(), "stream": True, **self._extra}
        return {key: value for key, value in body.items() if value is not None}

    def _options(self) -> JsonObject:
        """What the dialect's requests have beside messages and tools; None leaves a field out."""
        raise NotImplementedError

    def _renderer(self, session_id: str) -> _Renderer:
        """The session's renderer. Those that were not used for longest are given up."""
        renderer = self._renderers.pop(session_id, None) or self.dialect.renderer(self.profile)
        self._renderers[session_id] = renderer
        if len(self._renderers) > _SESSIONS:
            self._renderers.popitem(last=False)
        return renderer

    def _profile(self, given: Profile | None) -> Profile:
        usual = PROFILES[self.profiles[""]]
        host = f".{self._api.host.lower().removesuffix('.')}"
        known = (name for suffix, name in self.profiles.items() if suffix and host.endswith(f".{suffix}"))
        profile = given or PROFILES[next(known, usual.name)]
        if profile.dialect != usual.dialect:
            fitting = ", ".join(name for name, other in PROFILES.items() if other.dialect == usual.dialect)
            raise InvalidInput(
                f"profile: {profile.name} is of the {profile.dialect} dialect, not {usual.dialect}; "
                f"fitting are {fitting}"
            )
        return evolve(profile, model=self.name)


# --- options -----------------------------------------------------------------------------------------------------

_OURS: Final = frozenset({"input", "messages", "stream", "tools"})


def _check_name(name: str) -> None:
    check_text("model", name)
    if not name.strip():
        raise InvalidInput("model: the name is empty")


def _check_address(base_url: object, api_key: object) -> None:
    if base_url is not None and not (isinstance(base_url, str) and base_url.startswith(("http://", "https://"))):
        raise InvalidInput("base_url: must be a text that begins with http:// or https://")
    if api_key is not None and not (isinstance(api_key, str) and api_key.isascii() and api_key.isprintable()):
        raise InvalidInput("api_key: must be a text of printable ASCII characters")
    if api_key == "":
        raise InvalidInput("api_key: is empty")


def _check_number(name: str, value: object, *, above: float | None = None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise InvalidInput(f"{name}: must be a number, 0 or more, not {value!r}")
    if value == above:
        raise InvalidInput(f"{name}: must be above {above:g}")


def _extra_fields(extra_body: Mapping[str, Any] | None) -> JsonObject:
    try:
        fields = dict(extra_body or {})
    except (TypeError, ValueError):
        raise InvalidInput("extra_body: must be an object") from None
    check_json(fields, "extra_body")
    if ours := sorted(_OURS.intersection(fields)):
        raise InvalidInput(f"extra_body.{ours[0]}: is the agent's own")
    return fields
