"""Anthropic Messages: user and assistant in turn, each message a list of blocks.

1. **Messages** of one role after each other are one message, always. The first is the user's. What is said is a string
   if it is one plain text.
2. **Results** stand first in the very next message after their calls, a user's: one for each call, in call order.
   Everything else of the user, media that cannot ride in a result among it, comes behind them.
3. **Calls** stand behind the text of their answer. Signed thinking and calls stay as they are among each other. The
   input of a call is an object; malformed arguments travel inside one.
4. **Thinking** goes back to the model that made it, byte for byte and in its place; another gets none. Without a
   signature it cannot go back at all. An answer of which nothing is left is left out.
5. **Nothing blank** is sent, anywhere. An error result always has text; a result without any has no content.
6. **The server's own tools** (their calls and their results, in one answer) go back to the server that ran them, whole.
   To others a line of text stands for them.
7. A block says whose it is: one of a call is the assistant's even if a transcript has it in a user's message. System
   messages in a history are the user's here; the system prompt is a field of the request.
"""

from __future__ import annotations

from quiesce.protocol.dialects.anthropic.contract import problems, tool_problems
from quiesce.protocol.dialects.anthropic.parse import Stream, parse
from quiesce.protocol.dialects.anthropic.read import read
from quiesce.protocol.dialects.anthropic.render import Renderer, render_tools, request

__all__ = ["Renderer", "Stream", "parse", "problems", "read", "render_tools", "request", "tool_problems"]
