"""`Tool`, `@tool` and `Toolbox`: what an agent can do, as a model sees it and as Python runs it.

A tool is a value: a name, a description, the JSON schema of its arguments, the function, and how its body runs.

| function | its body runs |
|---|---|
| `async def` | in the task of its call |
| `def` | in a worker thread |
| `def`, with `isolation="process"` | in a worker process, which a time-out or an abort kills |

Everything that is wrong with a tool is said when it is made, by `InvalidInput`, never in the middle of a turn.
"""

from __future__ import annotations

import copy
import inspect
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, ParamSpec, TypeAlias, TypeVar, overload

from attrs import Attribute, Factory, field, frozen

from quiesce.actors.arguments import InvalidArguments, ParsedArguments, dump_arguments, load_arguments
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.model import ToolSpec
from quiesce.protocol.storable import check_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable, Iterator

    from quiesce.actors.arguments import Reader
    from quiesce.protocol.events import CallClass, JsonObject

__all__ = ["AnyTool", "InvalidArguments", "ParsedArguments", "Predicate", "Runs", "Tool", "Toolbox", "tool"]

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)

Predicate: TypeAlias = Callable[[dict[str, Any]], bool]
"""Says whether a call with these arguments may run beside others. Synchronous and pure: it is asked more than once."""

Runs: TypeAlias = Literal["task", "thread", "process"]
"""Where a body runs: in the task of its call, in a worker thread, or in a worker process."""

_MAX_NAME: Final = 128


# --- what a tool may be ------------------------------------------------------------------------------------------


def _check_name(_tool: object, _field: object, name: Any) -> None:  # noqa: ANN401 - whatever was given
    """Any printable label: what a provider's alphabet cannot say, its dialect encodes."""
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable() or " " in name:
        raise InvalidInput(f"tool name {name!r}: must be 1 to {_MAX_NAME} printable characters without spaces")
    if name == "<lambda>":
        raise InvalidInput("tool name '<lambda>': a lambda has no name of its own; give name=...")


def _check_description(tool: AnyTool, _field: object, text: Any) -> None:  # noqa: ANN401 - whatever was given
    if not isinstance(text, str):
        raise InvalidInput(f"tool {tool.name!r}, description: must be a string, not {type(text).__name__}")
    check_json(text, f"tool {tool.name!r}, description")


def _check_parameters(tool: AnyTool, _field: object, schema: object) -> None:
    where = f"tool {tool.name!r}, parameters"
    check_json(schema, where)
    if not isinstance(schema, dict) or schema.get("type", "object") != "object":
        raise InvalidInput(f"{where}: must be the JSON schema of an object")


def _check_parallel(tool: AnyTool, _field: object, parallel: object) -> None:
    where = f"tool {tool.name!r}, parallel"
    if isinstance(parallel, bool):
        return
    if not callable(parallel):
        raise InvalidInput(f"{where}: must be True, False or a function of the arguments, not {parallel!r}")
    if _is_async(parallel) or _is_async(type(parallel).__call__):
        raise InvalidInput(f"{where}: the function must be synchronous")


def _check_seconds(tool: AnyTool, attribute: Attribute[Any], seconds: object) -> None:
    if seconds is None:
        return
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise InvalidInput(f"tool {tool.name!r}, {attribute.name}: must be a positive number of seconds")


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


# --- Tool --------------------------------------------------------------------------------------------------------


@frozen(eq=False, kw_only=True)
class Tool(Generic[P, R_co]):
    """One thing that a model may ask for. Made by `@tool` or `Tool.from_schema`; calling it calls its function.

    `parameters` is the JSON schema of its arguments. `timeout` is in seconds: a body that takes longer is cancelled,
    waited for, and answered `TOOL_TIMEOUT` whatever it returns. `abandon_after` is in seconds too: a body that has not
    ended so long after its cancellation is given up (only with this option; see the scheduler).
    """

    name: str = field(validator=_check_name)
    description: str = field(validator=_check_description, repr=False)
    parameters: JsonObject = field(validator=_check_parameters, repr=False)
    function: Callable[P, R_co] = field(repr=False)
    runs: Runs
    parallel: bool | Predicate = field(default=False, validator=_check_parallel)
    timeout: float | None = field(default=None, validator=_check_seconds)
    abandon_after: float | None = field(default=None, validator=_check_seconds)
    spec: ToolSpec = field(
        init=False, repr=False, default=Factory(lambda it: ToolSpec(it.name, it.description, it.parameters), True)
    )
    _read: Reader = field(repr=False)

    @classmethod
    def from_schema(
        cls,
        name: str,
        description: str,
        parameters: JsonObject,
        function: Callable[[JsonObject], Awaitable[object]],
        *,
        parallel: bool | Predicate = False,
        timeout: float | None = None,
        abandon_after: float | None = None,
    ) -> AnyTool:
        """A tool that is known by its schema alone, as one on another server is.

        `function` is async and takes the raw argument object, which is checked to be an object and no further: who
        wrote the schema also checks what fits it. Raises `InvalidInput`.
        """
        if not inspect.iscoroutinefunction(function):
            raise InvalidInput(f"tool {name!r}, function: must be an async function of the argument object")

        async def call(**arguments: object) -> object:
            return await function(arguments)

        return Tool(
            name=name,
            description=description,
            parameters=copy.deepcopy(parameters),
            function=call,
            runs="task",
            parallel=parallel,
            timeout=timeout,
            abandon_after=abandon_after,
            read=lambda _text, raw: dict(raw),
        )

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function as it was before it was decorated: no checks, no thread, no time-out."""
        return self.function(*args, **kwargs)

    def parse(self, arguments: str) -> ParsedArguments:
        """What a model wrote, as values that fit the function; nothing but white space means no arguments.

        Raises `InvalidArguments`, and nothing else, with a text for the model.
        """
        text = arguments if arguments.strip() else "{}"
        raw = load_arguments(text)
        return ParsedArguments(raw, self._read(text, raw))

    def validate(self, arguments: JsonObject) -> ParsedArguments:
        """The same for an argument object (one that a hook rewrote). The result shares nothing with it."""
        return self.parse(dump_arguments(arguments))

    def classify(self, arguments: ParsedArguments) -> CallClass:
        """`parallel` only if the tool says exactly `True` for these values; one that raises says `exclusive`."""
        if isinstance(self.parallel, bool):
            return "parallel" if self.parallel else "exclusive"
        try:
            answer: object = self.parallel(dict(arguments.values))
        except Exception:  # noqa: BLE001 - a predicate that cannot answer has not said that the call may share the pool
            return "exclusive"
        if inspect.iscoroutine(answer):
            answer.close()
        return "parallel" if answer is True else "exclusive"


AnyTool: TypeAlias = Tool[..., Any]


# --- @tool -------------------------------------------------------------------------------------------------------


@overload
def tool(function: Callable[P, R_co], /) -> Tool[P, R_co]: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool | Predicate = False,
    timeout: float | None = None,
    abandon_after: float | None = None,
    isolation: Literal["process"] | None = None,
) -> Callable[[Callable[P, R_co]], Tool[P, R_co]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool | Predicate = False,
    timeout: float | None = None,
    abandon_after: float | None = None,
    isolation: Literal["process"] | None = None,
) -> Any:
    """Make a function a `Tool`, as `@tool` or with options: `@tool(parallel=True, timeout=30)`.

    The type hints give the schema of the arguments: pydantic says which types can be read, `Annotated[...,
    Field(description=...)]` tells the model about one. `name` and `description` default to the function's name and
    docstring. `parallel` says that a call may run beside other parallel ones: for all arguments (`True`), or for those
    for which a pure synchronous function of the argument values returns exactly `True`. See `Tool` for `timeout` and
    `abandon_after`; see the module for `isolation`, which needs a function that can be found by module and name.

    Raises `InvalidInput`, which names the tool and the parameter or option.
    """
    namespace = sys._getframe(1).f_locals  # noqa: SLF001 - postponed annotations may name what stands beside the function

    def decorate(decorated: Callable[..., Any]) -> AnyTool:
        runs = _where(decorated, isolation)
        called = decorated.__name__ if name is None else name
        _check_name(None, None, called)
        from quiesce.actors.signatures import read_signature  # noqa: PLC0415 - imports pydantic, at the first decoration

        parameters, read = read_signature(decorated, called, namespace)
        return Tool(
            name=called,
            description=(inspect.getdoc(decorated) or "") if description is None else description,
            parameters=parameters,
            function=decorated,
            runs=runs,
            parallel=parallel,
            timeout=timeout,
            abandon_after=abandon_after,
            read=read,
        )

    return decorate if function is None else decorate(function)


def _where(function: object, isolation: object) -> Runs:
    """Where the body of `function` runs; raises `InvalidInput` for what cannot be a tool."""
    if not inspect.isfunction(function) and not inspect.ismethod(function):
        raise InvalidInput(f"tool: {function!r} is not a function; decorate a def or an async def")
    where = f"tool {function.__name__!r}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise InvalidInput(f"{where}: is a generator; a tool returns its result once")
    if isolation is None:
        return "task" if inspect.iscoroutinefunction(function) else "thread"
    if isolation != "process":
        raise InvalidInput(f"{where}, isolation: must be 'process' or None, not {isolation!r}")
    if inspect.iscoroutinefunction(function):
        raise InvalidInput(f"{where}, isolation: a worker process runs a def, not an async def")
    if inspect.ismethod(function) or "<" in function.__qualname__:
        raise InvalidInput(f"{where}, isolation: a worker process finds functions by module and name; not this one")
    return "process"


# --- Toolbox -----------------------------------------------------------------------------------------------------


class Toolbox:
    """The tools of one agent, in the order in which a model is told of them. Raises `InvalidInput` for equal names.

    Its own tools stay the same. Others, of a server for instance, stand on a shelf, which may be filled anew.
    """

    def __init__(self, tools: Iterable[AnyTool] = ()) -> None:
        self._tools: dict[str, AnyTool] = {}
        self._shelves: dict[str, dict[str, AnyTool]] = {}
        for position, item in enumerate(tools):
            if not isinstance(item, Tool):
                raise InvalidInput(f"tools[{position}]: {item!r} is not a tool; decorate the function with @tool")
            if item.name in self._tools:
                raise InvalidInput(f"tools[{position}]: there is a tool {item.name!r} already")
            self._tools[item.name] = item
        self._own = frozenset(self._tools)

    def shelve(self, shelf: str, tools: Iterable[AnyTool]) -> tuple[str, ...]:
        """Put `tools` on a shelf, in place of what stood there; a shelf keeps its place among the others.

        Returns the names that are taken: those tools are left out.
        """
        wanted = {item.name: item for item in tools}
        old = self._shelves.get(shelf, {})
        taken = tuple(name for name in wanted if name in self._tools and name not in old)
        self._shelves[shelf] = {name: item for name, item in wanted.items() if name not in taken}
        self._tools = {name: item for name, item in self._tools.items() if name in self._own}
        for items in self._shelves.values():
            self._tools |= items
        return taken

    def get(self, name: str) -> AnyTool | None:
        """The tool of that name, if there is one."""
        return self._tools.get(name)

    def specs(self) -> tuple[ToolSpec, ...]:
        """What a model is told of each tool, in order."""
        return tuple(item.spec for item in self._tools.values())

    def __iter__(self) -> Iterator[AnyTool]:
        return iter(self._tools.values())

    def __len__(self) -> int:
        return len(self._tools)
