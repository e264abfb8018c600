"""OpenAI Responses: a streamed or a whole reply, as deltas.

1. A reply is a list of output items, each known by its `output_index`. What is streamed of an item is passed on as it
   comes; when the item is done, what its deltas did not bring is taken from the item itself. Some servers stream no
   deltas, or nothing but the last event.
2. A done reasoning item with `encrypted_content` is what the provider wants back, whole (`Sealed`). The one of
   `output_item.added` may be incomplete and is not looked at. Without that content the item is text for people.
3. A call's `call_id` is its label; `id` and `status` name the item and stay behind. Other fields go with the call.
4. `response.completed` ends a complete reply. `status: incomplete` is the token limit, or the content filter, which is
   an error; so are `response.failed` and `error`.
5. Items of the provider's own tools are kept as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from attrs import Factory, define

from quiesce.protocol.dialects.faults import malformed, model_error
from quiesce.protocol.dialects.replies import EventStream, array, assembled, extras, obj, reply_source, text
from quiesce.protocol.errors import ModelError
from quiesce.protocol.events import OpaqueBlock
from quiesce.protocol.model import BlockDone, CallDelta, Finished, ReasoningDelta, Sealed, TextDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from quiesce.protocol.dialects.replies import Thing
    from quiesce.protocol.events import Block, JsonObject
    from quiesce.protocol.model import Delta

__all__ = ["Stream", "parse"]

_CALL_FIELDS: Final = frozenset({"type", "id", "call_id", "name", "arguments", "status", "async", "parsed_arguments"})


@define
class _Item:
    """What is known of one output item."""

    started: bool = False
    done: bool = False
    streamed: str = ""


@define
class Stream(EventStream):
    """One streamed reply. `take` each event, as a JSON object; then `end`."""

    _items: dict[int, _Item] = Factory(dict)
    _called: bool = False
    _cut: bool = False

    # --- what is streamed --------------------------------------------------------------------------------------

    def _text(self, event: JsonObject) -> Iterator[Delta]:
        yield TextDelta(self._streamed(event))

    def _reasoning(self, event: JsonObject) -> Iterator[Delta]:
        yield ReasoningDelta(self._streamed(event))

    def _reasoning_part(self, event: JsonObject) -> Iterator[Delta]:
        """The parts of a summary are paragraphs."""
        item = self._item(event)
        if item.streamed:
            item.streamed += _GAP
            yield ReasoningDelta(_GAP)

    def _arguments(self, event: JsonObject) -> Iterator[Delta]:
        yield CallDelta(_index(event), arguments=self._streamed(event))

    def _streamed(self, event: JsonObject) -> str:
        piece = text(event.get("delta"), "delta")
        self._item(event).streamed += piece
        return piece

    # --- items -------------------------------------------------------------------------------------------------

    def _added(self, event: JsonObject) -> Iterator[Delta]:
        item = obj(event.get("item"), "an output item")
        if item.get("type") == "function_call":
            yield from self._start_call(_index(event), item)

    def _start_call(self, index: int, item: JsonObject) -> Iterator[Delta]:
        known, self._called = self._items.setdefault(index, _Item()), True
        if known.started:
            return
        known.started = True
        first = "" if known.streamed else text(item.get("arguments"), "arguments")
        known.streamed += first
        label = text(item.get("call_id"), "call_id") or text(item.get("id"), "id")
        yield CallDelta(index, label, text(item.get("name"), "name"), first)

    def _done(self, event: JsonObject) -> Iterator[Delta]:
        yield from self._finish_item(_index(event), obj(event.get("item"), "an output item"))

    def _finish_item(self, index: int, item: JsonObject) -> Iterator[Delta]:
        known = self._items.setdefault(index, _Item())
        if known.done:
            return
        known.done = True
        match item.get("type"):
            case "function_call":
                yield from self._finish_call(index, known, item)
            case "message":
                parts = array(item.get("content"), "content")
                yield TextDelta(_rest(known, "".join(_written(parts))))
            case "reasoning":
                parts = array(item.get("summary"), "summary") or array(item.get("content"), "content")
                yield ReasoningDelta(_rest(known, _GAP.join(_written(parts))))
                if item.get("encrypted_content") and item.get("status") != "incomplete":
                    yield Sealed(item)
            case _:
                yield BlockDone(OpaqueBlock(item))

    def _finish_call(self, index: int, known: _Item, item: JsonObject) -> Iterator[Delta]:
        yield from self._start_call(index, item)
        arguments = text(item.get("arguments"), "arguments")
        if not arguments.startswith(known.streamed):
            raise malformed("the arguments of a call are not those that were streamed")
        replay = extras(item, _CALL_FIELDS)
        if replay or arguments != known.streamed:
            yield CallDelta(index, arguments=arguments[len(known.streamed) :], replay=replay)
        self._cut |= item.get("status") == "incomplete"

    def _item(self, event: JsonObject) -> _Item:
        return self._items.setdefault(_index(event), _Item())

    # --- the end -----------------------------------------------------------------------------------------------

    def _over(self, event: JsonObject) -> Iterator[Delta]:
        response = obj(event.get("response"), "response")
        status = response.get("status") or str(event["type"]).removeprefix("response.")
        if status not in ("completed", "incomplete"):
            raise model_error(response.get("error") or f"the response is {status}", code="server_error")
        for index, item in enumerate(array(response.get("output"), "output")):
            yield from self._finish_item(index, obj(item, "an output item"))
        reason = obj(response.get("incomplete_details") or {}, "incomplete_details").get("reason")
        if reason == "content_filter":
            raise ModelError("the provider's content filter ended the reply", code="CONTENT_FILTER")
        cut = self._cut or status == "incomplete"
        usage = response.get("usage")
        yield Finished(
            "max-tokens" if cut else "tool-calls" if self._called else "stop",
            None if usage is None else obj(usage, "usage"),
            reply_source(response.get("id"), response.get("model")),
        )

    _HANDLERS: ClassVar[dict[str, Callable[[Stream, JsonObject], Iterable[Delta]]]] = {
        "response.output_item.added": _added,
        "response.output_item.done": _done,
        "response.output_text.delta": _text,
        "response.refusal.delta": _text,
        "response.reasoning_summary_part.added": _reasoning_part,
        "response.reasoning_summary_text.delta": _reasoning,
        "response.reasoning_text.delta": _reasoning,
        "response.function_call_arguments.delta": _arguments,
        "response.completed": _over,
        "response.incomplete": _over,
        "response.failed": _over,
        "response.cancelled": _over,
    }


_GAP: Final = "\n\n"


def _index(event: JsonObject) -> int:
    index = event.get("output_index")
    if type(index) is not int:
        raise malformed("the output_index of an event is no whole number")
    return index


def _written(parts: list[Thing]) -> Iterator[str]:
    """The texts of the parts of an item; a refusal is one."""
    for part in parts:
        told = obj(part, "a part of an item")
        yield text(told.get("text"), "text") + text(told.get("refusal"), "refusal")


def _rest(known: _Item, whole: str) -> str:
    """What was not streamed of an item's text: all of it, or the end; none, if the two differ."""
    return whole[len(known.streamed) :] if whole.startswith(known.streamed) else ""


def parse(reply: JsonObject) -> tuple[Block, ...]:
    """The blocks of a whole reply (a `response` object). Raises `ModelError` as `Stream` does."""
    status = obj(reply, "a reply").get("status") or "completed"
    return assembled(Stream().take({"type": "response.completed", "response": {**reply, "status": status}}))
