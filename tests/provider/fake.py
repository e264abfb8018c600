"""A strict fake provider: an HTTP server on loopback that speaks Chat Completions, Responses and Anthropic Messages.

Real SDK clients talk to it over real sockets. It refuses, with status 400 and the position, every request that breaks
the contract of its dialect (`validator.py`, which shares no code with the package under test; `seals.py` for signed
reasoning), and plays a script for those it accepts. Tests get this module as the fixture `fake_provider`.

**In a Trio test.** A script is a list of replies, and a reply a list of actions (`script.py` has them all):

    async def test_it(fake_provider):
        fp = fake_provider
        replies = [
            [fp.Text("Let me look.", pieces=3), fp.Call("read", {"path": "a"}), fp.Call("read", {"path": "b"})],
            [fp.refuse(429, retry_after=1)],
            [fp.Text("Done."), fp.Usage(12, 3)],
        ]
        async with fp.FakeProvider(replies, variant="openai") as provider:
            client = openai.AsyncOpenAI(base_url=provider.base_url, api_key=provider.key, max_retries=0)
            ...
            assert provider.refused == []                  # every request kept the contract
            assert provider.requests[0].body["stream"]     # what was sent, in order of arrival

The three dialects are served at once: `base_url` ends in /v1 for the openai SDK, and `root_url` is for anthropic's,
which adds /v1 itself. A reply is played in the dialect that the request came in. `variant` is what is enforced:
"openai", "anthropic", "deepseek", "mistral", "compatible" (a server of whom nothing more is known), or "strict" (the
default), which is all of it.

A script may also be a function of the request (`Request`: number, dialect, body, last_text, depth, ...) that gives the
reply, or `by_depth(replies)`, which picks the reply by the number of model messages already in the conversation: a
conversation that was killed and is resumed then goes on where it was, and many may run at once.

**Timing without sleeping.** `Wait("name")` stops a reply until the test says `provider.open("name")`, or
`provider.let("name", 2)` for the next two to pass; `Text(..., gate="name")` has each piece wait, which makes a trickle.
`await provider.waiting("name", n)`, `await provider.received(n)`, `await provider.disconnected(n)` and
`await provider.closed()` wait for n replies at the gate, n requests, n replies that the client left, and no open
connection. The server reads no clock. An autojump clock can be used where client and provider share one event loop: to
that clock, a wait for another thread or process looks idle.

**From a thread**, for tests that are not on Trio: `with fp.in_thread(replies, variant="openai") as provider:` has the
same face, and `provider.call(provider.disconnected, 1)` waits in the server's thread.

**As a process**: `python tests/provider SCRIPT.json --port 8080 --variant strict` (`__main__.py` tells more).
"""

from __future__ import annotations

from .background import ThreadedProvider, in_thread
from .records import Breach, Request
from .script import (
    Call,
    Calls,
    Cut,
    End,
    ErrorEvent,
    Event,
    Finish,
    Hang,
    Malformed,
    Refuse,
    Reset,
    Script,
    Text,
    Thinking,
    Usage,
    Wait,
    by_depth,
    read_script,
    refuse,
)
from .server import FakeProvider
from .validator import VARIANTS, Problem, Rules, problems

__all__ = [
    "VARIANTS",
    "Breach",
    "Call",
    "Calls",
    "Cut",
    "End",
    "ErrorEvent",
    "Event",
    "FakeProvider",
    "Finish",
    "Hang",
    "Malformed",
    "Problem",
    "Refuse",
    "Request",
    "Reset",
    "Rules",
    "Script",
    "Text",
    "Thinking",
    "ThreadedProvider",
    "Usage",
    "Wait",
    "by_depth",
    "in_thread",
    "problems",
    "read_script",
    "refuse",
]
