"""OpenAI Chat Completions: the dialect of most servers.

1. **Messages** have a role. A message of one kind after its like is one message, where the profile merges. What is
   said is a string if it is one plain text, and a list of parts otherwise.
2. **Calls** stand in the assistant's message, beside its text: `tool_calls` is there only if there are calls. Content
   is null where there is nothing but calls.
3. **Results** stand right behind, one `tool` message for each call, in call order, and hold text alone. Nothing comes
   between. Media that a result brought, notes and input come behind the whole batch, in a user's message.
4. **Nothing blank** is sent, but where a transcript of the same server had it and the profile is to leave it so. A
   message with nothing in it is left out; a result with nothing in it says so.
5. **Arguments** are text. None mean `{}`. Malformed ones stay as they are, or travel inside an object, as the profile
   wants it.
6. **Reasoning** is text for people, but for servers that want `reasoning_content` back with each call. They get what
   they wrote, and a sentence in its place where another model made the call.
7. A call's extra fields go back to the model that made it and to no other.
8. System and developer messages stay where they are; servers that know no developer have a system.
"""

from __future__ import annotations

from quiesce.protocol.dialects.chat.contract import problems, tool_problems
from quiesce.protocol.dialects.chat.parse import Stream, parse
from quiesce.protocol.dialects.chat.read import read
from quiesce.protocol.dialects.chat.render import Renderer, render_tools, request

__all__ = ["Renderer", "Stream", "parse", "problems", "read", "render_tools", "request", "tool_problems"]
