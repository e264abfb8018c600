"""`McpServer`: how to reach one server, as a value. Everything that is wrong with it is said when it is made."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from attrs import field, frozen

from quiesce.actors.kernel import Backoff
from quiesce.actors.options import check_instance, check_seconds
from quiesce.protocol.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

__all__ = ["MISSING_EXTRA", "McpServer"]

MISSING_EXTRA: Final = "MCP servers need the package `mcp`: pip install 'quiesce[mcp]'"

_LAUNCHER: Final = re.compile(r"(python|pypy|node|npx|npm|uvx?|pipx|bunx?|deno|docker|podman)[\d.]*", re.IGNORECASE)
"""Commands that say nothing about the server: it is named by what they launch."""
_LAUNCHES: Final = frozenset({"run", "exec", "tool", "x"})
_MAX_NAME: Final = 64
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, token
_PORTS: Final = range(1, 65536)


@frozen(init=False)
class McpServer:
    """One MCP server: a command that is started and spoken to over its standard streams, or a URL (streamable HTTP).

        McpServer("mcp-server-time", "--local-timezone", "UTC")
        McpServer(url="http://127.0.0.1:8000/mcp")

    What may be secret (`env`, `headers`, the path and query of the URL) is in no `repr`, log or error of quiesce.
    """

    command: tuple[str, ...]
    url: str | None = field(repr=lambda url: repr(_shown(url) if url else None))
    name: str
    """Names the server in errors and logs, and its tools by the prefix."""
    prefix: str
    """What the name of each of its tools begins with."""
    env: Mapping[str, str] = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    cwd: str | None
    timeout: float | None
    """Seconds that a call may take, or None for any number."""
    connect_timeout: float
    """Seconds from the start of the process, or the first request, until its tools are known; also to list again."""
    reconnect_wait: float
    """Seconds that a call waits while the server is being connected to again. Never more than half of `timeout`."""
    grace: float
    """Seconds that a process has to end after its standard input was closed, and again after it was terminated."""
    backoff: Backoff
    """How long to wait before each reconnect."""

    def __init__(  # noqa: PLR0913 - all that can be said of a server, one keyword each
        self,
        *command: str | PathLike[str],
        url: str | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | PathLike[str] | None = None,
        headers: Mapping[str, str] | None = None,
        name: str | None = None,
        prefix: str | None = None,
        timeout: float | None = 60.0,
        connect_timeout: float = 30.0,
        reconnect_wait: float = 10.0,
        grace: float = 2.0,
        backoff: Backoff | None = None,
    ) -> None:
        """Describe a server; nothing is started.

        Args:
            command: the program and its arguments, one by one; no shell is involved.
            url: of a server that is running.
            env: variables for the process, besides those that the SDK hands on (HOME, PATH and their like): the
                secrets of this process are not for every server.
            cwd: the working directory of the process.
            headers: sent with each request; `authorization`, for instance.
            name: by default made from the command or the host of the URL.
            prefix: by default the name and two underscores. Empty: the tools keep their own names.
            timeout: see the field; as the following.
            connect_timeout: as above.
            reconnect_wait: as above.
            grace: as above.
            backoff: by default 0.1 s, doubled each time up to 30 s.

        Raises:
            InvalidInput: an argument is wrong; it says which. Also if the extra `mcp` is not installed.

        """
        if find_spec("mcp") is None:
            raise InvalidInput(MISSING_EXTRA)
        words = _words(command)
        _check_way(words, url, env=env, cwd=cwd, headers=headers)
        called = _default_name(words, url) if name is None else name
        _check_label("name", called, least=1)
        start = f"{called}__" if prefix is None else prefix
        _check_label("prefix", start, least=0)
        if timeout is not None:
            _check_time("timeout", timeout, above=0)
        _check_time("connect_timeout", connect_timeout, above=0)
        _check_time("reconnect_wait", reconnect_wait)
        _check_time("grace", grace)
        if backoff is not None:
            check_instance("backoff", backoff, Backoff)
        self.__attrs_init__(
            command=words,
            url=url,
            name=called,
            prefix=start,
            env=_strings("env", env, _check_variable),
            headers=_strings("headers", headers, _check_header),
            cwd=None if cwd is None else os.fspath(cwd),
            timeout=timeout,
            connect_timeout=connect_timeout,
            reconnect_wait=reconnect_wait,
            grace=grace,
            backoff=backoff or Backoff(),
        )

    @property
    def patience(self) -> float:
        """Seconds that a call waits for a reconnect, so that its time-out never comes first and says less."""
        return self.reconnect_wait if self.timeout is None else min(self.reconnect_wait, self.timeout / 2)

    @property
    def shutdown(self) -> float:
        """Seconds after which its end is overdue: every wait on the way is bounded, and these are all of them."""
        return 3 * self.grace + 5.0


# --- checks ------------------------------------------------------------------------------------------------------


def _words(command: tuple[object, ...]) -> tuple[str, ...]:
    words = []
    for at, word in enumerate(command):
        if not isinstance(word, str | os.PathLike) or not isinstance(text := os.fspath(word), str) or "\0" in text:
            raise InvalidInput(f"command[{at}]: must be a text or a path without NUL, not {type(word).__name__}")
        words.append(text)
    if words and not words[0].strip():
        raise InvalidInput("command: the program has no name")
    return tuple(words)


def _check_way(words: tuple[str, ...], url: object, **others: object) -> None:
    """Either a command or a URL, and only what goes with it."""
    if bool(words) == (url is not None):
        raise InvalidInput("McpServer: give a command or a url, one of the two")
    for option in ("headers",) if words else ("env", "cwd"):
        if others[option] is not None:
            raise InvalidInput(f"{option}: does not go with a {'command' if words else 'url'}")
    if url is not None:
        _check_url(url)
    if not (others["cwd"] is None or isinstance(others["cwd"], str | os.PathLike)):
        raise InvalidInput(f"cwd: must be a path, not {others['cwd']!r}")


def _check_url(url: object) -> None:
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        fits = parts is not None and parts.scheme in {"http", "https"} and bool(parts.hostname)
        fits = fits and parts is not None and (parts.port is None or parts.port in _PORTS)
    except ValueError:
        fits = False
    if not fits:
        raise InvalidInput("url: must be an http:// or https:// URL with a host")


def _check_label(option: str, value: object, *, least: int) -> None:
    if not isinstance(value, str) or not least <= len(value) <= _MAX_NAME or not value.isprintable() or " " in value:
        raise InvalidInput(
            f"{option}: must be {least} to {_MAX_NAME} printable characters without spaces, not {value!r}"
        )


def _check_time(option: str, seconds: float, *, above: float = -1) -> None:
    check_seconds(option, seconds)
    if not above < seconds < math.inf:
        raise InvalidInput(f"{option}: must be a finite number of seconds{', above 0' * (above == 0)}, not {seconds!r}")


def _strings(option: str, values: object, check: Callable[[str, str], None]) -> dict[str, str]:
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(isinstance(text, str) for pair in values.items() for text in pair):
        raise InvalidInput(f"{option}: must be a mapping of texts to texts")
    for key, value in values.items():
        check(key, value)
    return dict(values)


def _check_variable(key: str, value: str) -> None:
    if not key or "=" in key or "\0" in key + value:
        raise InvalidInput(f"env: {key!r} is no name of a variable, or its value has a NUL")  # never the value itself


def _check_header(key: str, value: str) -> None:
    if not _HEADER_NAME.fullmatch(key) or not value.isascii() or not value.isprintable():
        raise InvalidInput(f"headers: {key!r} is no name of a header, or its value cannot be sent")


# --- names -------------------------------------------------------------------------------------------------------


def _default_name(words: tuple[str, ...], url: str | None) -> str:
    if url is not None:
        return (urlsplit(url).hostname or "server")[:_MAX_NAME]
    said = next((word for word in words if not _says_nothing(word)), words[0])
    stem = re.split(r"[/\\]", said.rstrip("/\\"))[-1]
    stem = re.sub(r"(?<=.)@[^@]*$|\.(py|js|mjs|cjs|ts|exe|cmd)$", "", stem)  # a version, a file's ending
    return re.sub(r"[^\w.-]", "_", stem)[:_MAX_NAME] or "server"


def _says_nothing(word: str) -> bool:
    stem = re.split(r"[/\\]", word)[-1].removesuffix(".exe").removesuffix(".cmd")
    return word.startswith("-") or word in _LAUNCHES or _LAUNCHER.fullmatch(stem) is not None


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname}{f':{parts.port}' if parts.port else ''}/..."
