"""The official SDKs as the models use them: finding one, making a client, and telling what an error of it means.

The two SDKs have the same face and no type in common, so modules and clients are `Any` here, and nowhere else.

A client of ours opens as many connections as there are requests at a time (the SDKs' own limit would turn a wait into a
time-out), and keeps a hundred for the next ones. The SDK's own retries are off.
"""

from __future__ import annotations

import time
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from attrs import frozen

from quiesce.protocol.dialects.faults import Circumstances, model_error
from quiesce.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from quiesce.protocol.errors import ModelError
    from quiesce.protocol.events import JsonObject

__all__ = ["OPENAI", "ApiClient", "Response", "Sdk"]

Client: TypeAlias = Any
"""`AsyncOpenAI` or `AsyncAnthropic`."""
Module: TypeAlias = Any
"""The module of an SDK."""
Response: TypeAlias = Any
"""An `httpx2.Response`: of a package that comes with the extras."""

_KEPT_CONNECTIONS: Final = 100
_LAST_PORT: Final = 65_535
_SHORTEST_SECRET: Final = 8
"""Keys that are shorter are made up, for servers that want none, and could be any word."""


@frozen
class Sdk:
    """An official SDK: its module, which is also the name of the extra, its client, and where that finds its key."""

    name: str
    client: str
    root_error: str
    key_variable: str
    credentials: tuple[str, ...]
    """The attributes of a client that hold a key or whatever stands for one."""

    def connect(self, *, base_url: str | None, api_key: str | None, timeout: float | None) -> ApiClient:
        """A client of our own. What is None is left to the SDK. Raises `InvalidInput` for a missing extra or key."""
        module = self._load()
        given = {"base_url": base_url, "api_key": api_key, "timeout": timeout}
        options = {name: value for name, value in given.items() if value is not None}
        try:
            client = getattr(module, self.client)(**options, http_client=_http_client(module), max_retries=0)
        except getattr(module, self.root_error):
            client = None
        except Exception as error:  # what the HTTP client under it says of an address, also of that in a variable
            raise InvalidInput(f"base_url: {error}") from error
        if client is None or not any(getattr(client, name, None) for name in self.credentials):
            raise InvalidInput(
                f"api_key: there is none; set {self.key_variable} or give one (any, to a server without)"
            )
        if not client.base_url.host or (client.base_url.port or 0) > _LAST_PORT:
            raise InvalidInput(f"base_url: there is no {'such port' if client.base_url.host else 'host in it'}")
        if not all(_can_be_sent(getattr(client, name, None)) for name in self.credentials):
            raise InvalidInput(f"api_key: {self.key_variable} holds what no key has: only printable ASCII can be sent")
        return ApiClient(self, module, client, owned=True)

    def borrow(self, client: Client, others: Mapping[str, object]) -> ApiClient:
        """The user's own client. `others` are options that belong to it; raises `InvalidInput` if one is given."""
        module = self._load()
        if not isinstance(client, getattr(module, self.client)):
            raise InvalidInput(f"client: must be an {self.name}.{self.client}, not {type(client).__name__}")
        for name, value in others.items():
            if value is not None:
                raise InvalidInput(f"{name}: belongs to the client that was given")
        return ApiClient(self, module, client.with_options(max_retries=0), owned=False)

    def _load(self) -> Module:
        try:
            return import_module(self.name)
        except ImportError:
            raise InvalidInput(f"model: the {self.name} SDK is missing: pip install 'quiesce[{self.name}]'") from None


OPENAI: Final = Sdk(
    "openai", "AsyncOpenAI", "OpenAIError", "OPENAI_API_KEY", ("api_key", "admin_api_key", "_api_key_provider")
)
"""OpenAI's SDK, which two models are built on. A client may have a function instead of a key."""


@frozen(repr=False)
class ApiClient:
    """A client of an SDK. `owned` says that it is closed with its model."""

    sdk: Sdk
    module: Module
    client: Client
    owned: bool

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """What the SDK, and the HTTP client under it, raise."""
        import httpx2  # noqa: PLC0415 - comes with the extras

        return (getattr(self.module, self.sdk.root_error), httpx2.RequestError)

    @property
    def host(self) -> str:
        """The name of the server that it talks to."""
        return str(self.client.base_url.host)

    @property
    def is_closed(self) -> bool:
        """Whether it takes no more requests."""
        closed: bool = self.client.is_closed()
        return closed

    async def post(self, path: str, body: JsonObject) -> Response:
        """The response to a request, its body not read yet. It must be closed."""
        import httpx2  # noqa: PLC0415 - comes with the extras

        stream = self.module.AsyncStream[object]
        return await self.client.post(path, cast_to=httpx2.Response, body=body, stream=True, stream_cls=stream)

    async def aclose(self) -> None:
        """Close the connections, unless they are the user's."""
        if self.owned:
            await self.client.close()

    def around(self, headers: Mapping[str, str] | None = None, status: int | None = None) -> Circumstances:
        """What an error is told with."""
        values = (getattr(self.client, name, None) for name in self.sdk.credentials)
        secrets = tuple(value for value in values if isinstance(value, str) and len(value) >= _SHORTEST_SECRET)
        return Circumstances(status, headers or {}, time.time(), secrets=secrets)

    def fault(self, error: Exception, body: JsonObject) -> ModelError:
        """What one of `errors` means; `body` is the request."""
        import httpx2  # noqa: PLC0415 - comes with the extras

        sdk = self.module
        if isinstance(error, (sdk.APITimeoutError, httpx2.TimeoutException)):
            return model_error("the provider did not answer in time", self.around(), code="TIMEOUT")
        if isinstance(error, (sdk.APIConnectionError, httpx2.RequestError)):
            return model_error(_innermost(error), self.around(), code="CONNECTION")
        response = getattr(error, "response", None)
        around = self.around(None if response is None else response.headers, getattr(error, "status_code", None))
        told, code = getattr(error, "body", None), "SDK" if response is None else ""
        return model_error(str(error) if told is None else told, around, code=code, body=body)


def _can_be_sent(key: object) -> bool:
    """Whether a header can hold it: what cannot be sent is no failure of each request. Functions are not asked."""
    return not isinstance(key, str) or (key.isascii() and key.isprintable())


def _http_client(module: Module) -> Client:
    import httpx2  # noqa: PLC0415 - comes with the extras

    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=_KEPT_CONNECTIONS)
    return module.DefaultAsyncHttpxClient(limits=limits)


def _innermost(error: BaseException) -> str:
    """What the network said: SDK and HTTP client wrap it."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error) or type(error).__name__
