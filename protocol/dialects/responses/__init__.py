"""OpenAI Responses: a list of items, where each call and each piece of reasoning stands by itself.

1. **Items** of one answer stand together: reasoning, messages, calls, and what the server's own tools did. Text stands
   before calls, unless reasoning items hold all in its place.
2. **Outputs** stand right behind all calls of their answer, one for each, in call order: OpenAI is content with less,
   gateways that make Chat messages of the items are not.
3. **Reasoning items** go back to the model that made them, whole and in place; another gets none. One that nothing of
   its answer follows is left out, and an item goes without its server's `id` where its reasoning stays behind.
4. **Special calls** (custom tools, the computer, the shell) stay what they are if both the call and its answer came
   from this server, and become a function's call and its output otherwise.
5. Messages of one role after each other are one, where the profile merges. What is said is a string if it is one plain
   text. Nothing blank is sent but by a profile that is to leave it so.
6. Media may ride in outputs if the profile says so, and come behind the batch, in a user's message, if not.
7. The system prompt is `instructions`.
"""

from __future__ import annotations

from quiesce.protocol.dialects.responses.contract import problems, tool_problems
from quiesce.protocol.dialects.responses.parse import Stream, parse
from quiesce.protocol.dialects.responses.read import read
from quiesce.protocol.dialects.responses.render import Renderer, render_tools, request

__all__ = ["Renderer", "Stream", "parse", "problems", "read", "render_tools", "request", "tool_problems"]
