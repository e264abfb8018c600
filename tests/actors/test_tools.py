from __future__ import annotations

import dataclasses
import enum
import math
import subprocess
import sys
from typing import Annotated, Any, Literal, Optional

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, Field

from quiesce.actors.tools import InvalidArguments, ParsedArguments, Tool, Toolbox, tool
from quiesce.protocol.errors import InvalidInput
from quiesce.protocol.model import ToolSpec
from quiesce.protocol.storable import check_json


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: int
    y: int = 0


class Person(BaseModel):
    name: str


_MISSING = object()


@tool
def read_file(path: str, lines: int = 10) -> str:
    """Read a file."""
    return f"{path}:{lines}"


@tool(parallel=True, timeout=5, abandon_after=2.5, name="fetch", description="Fetch a page.")
async def fetch_page(url: str) -> str:
    return url


def raw(arguments: dict[str, Any]) -> ParsedArguments:
    return ParsedArguments(arguments, arguments)


# --- decoration


def test_a_bare_decorator_makes_a_tool_of_a_function():
    assert isinstance(read_file, Tool)
    assert (read_file.name, read_file.description) == ("read_file", "Read a file.")


def test_a_tool_is_still_callable_as_the_plain_function():
    assert read_file(path="a", lines=2) == "a:2"
    assert read_file("a") == "a:10"


async def test_an_async_tool_is_still_callable_as_the_plain_function():
    assert await fetch_page("here") == "here"


def test_options_are_kept_on_the_tool():
    assert (fetch_page.name, fetch_page.description) == ("fetch", "Fetch a page.")
    assert (fetch_page.parallel, fetch_page.timeout, fetch_page.abandon_after) == (True, 5, 2.5)


def test_a_def_runs_in_a_thread_and_an_async_def_in_its_task():
    assert (read_file.runs, fetch_page.runs) == ("thread", "task")


def test_a_def_can_ask_for_a_process():
    @tool
    def nothing() -> None: ...

    assert tool(isolation="process")(_plain).runs == "process"
    assert nothing.runs == "thread"


def _plain(x: int) -> int:
    return x


def test_a_bound_method_can_be_a_tool():
    class Counter:
        def add(self, amount: int) -> int:
            return amount

    made = tool(Counter().add)
    assert list(made.parameters["properties"]) == ["amount"]
    assert made(amount=3) == 3


def test_a_tool_cannot_be_changed():
    with pytest.raises(AttributeError):
        read_file.name = "other"  # type: ignore[misc]


def test_a_tool_tells_its_spec():
    assert read_file.spec == ToolSpec("read_file", "Read a file.", read_file.parameters)


def test_importing_the_module_does_not_import_pydantic():
    code = "import sys, quiesce.actors.tools; print('pydantic' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


# --- schemas


def test_the_schema_names_the_parameters_and_which_are_required():
    assert read_file.parameters == {
        "type": "object",
        "properties": {"path": {"type": "string"}, "lines": {"type": "integer", "default": 10}},
        "required": ["path"],
        "additionalProperties": False,
    }


def test_a_tool_without_parameters_has_an_empty_object_schema():
    @tool
    def now() -> str:
        return "now"

    assert now.parameters == {"type": "object", "properties": {}, "required": [], "additionalProperties": False}


def test_annotated_fields_describe_their_parameter():
    @tool
    def f(x: Annotated[int, Field(description="how many", ge=1)]) -> None: ...

    assert f.parameters["properties"]["x"] == {"type": "integer", "description": "how many", "minimum": 1}


def test_a_field_as_default_gives_description_and_default():
    @tool
    def f(x: int = Field(3, description="how many")) -> None: ...

    assert f.parameters["properties"]["x"] == {"type": "integer", "description": "how many", "default": 3}
    assert f.parse("").values == {"x": 3}


def test_a_default_inside_the_annotation_counts():
    @tool
    def f(x: Annotated[list[int], Field(default_factory=list)]) -> None: ...

    assert f.parameters["required"] == []
    assert f.parse("{}").values == {"x": []}


def test_keyword_only_parameters_are_arguments_like_others():
    @tool
    def f(*, x: int) -> None: ...

    assert f.parse('{"x": 1}').values == {"x": 1}


def test_unannotated_parameters_accept_anything():
    @tool
    def f(x): ...

    assert f.parameters["properties"] == {"x": {}}
    assert f.parse('{"x": [1, "a", null]}').values == {"x": [1, "a", None]}


@pytest.mark.parametrize("name", ["json", "schema", "model_config", "_private", "copy", "p0", "self_", "class_"])
def test_a_parameter_may_have_any_name(name):
    made = tool(_with_parameter(name))
    assert list(made.parameters["properties"]) == [name]
    assert made.parse(f'{{"{name}": 1}}').values == {name: 1}


def _with_parameter(name):
    space: dict[str, Any] = {}
    exec(f"def made({name}: int): ...", space)
    return space["made"]


def test_rich_types_are_read_as_python_values():
    @tool
    def f(c: Colour, p: Point, who: Person, mode: Literal["r", "w"], n: Optional[int] = None) -> None: ...  # noqa: UP045

    found = f.parse('{"c": "red", "p": {"x": 1}, "who": {"name": "Ada"}, "mode": "w"}').values
    assert found == {"c": Colour.RED, "p": Point(1), "who": Person(name="Ada"), "mode": "w", "n": None}
    check_json(f.parameters)


def test_annotations_may_name_types_that_stand_beside_the_function():
    class Local(BaseModel):
        x: int

    @tool
    def bare(v: Local) -> None: ...

    @tool(timeout=1)
    def with_options(v: Local) -> None: ...

    assert bare.parse('{"v": {"x": 1}}').values == {"v": Local(x=1)}
    assert with_options.parse('{"v": {"x": 1}}').values == {"v": Local(x=1)}


def test_a_return_annotation_that_cannot_be_evaluated_does_not_matter():
    @tool
    def f(x: int) -> NotDefinedAnywhere: ...  # type: ignore[name-defined]  # noqa: F821

    assert f.parse('{"x": 1}').values == {"x": 1}


@pytest.mark.parametrize("default", [math.nan, math.inf, "\ud800", _MISSING, {1, 2}])
def test_a_default_that_is_not_json_is_left_out_of_the_schema(default):
    @tool
    def f(x: Any = default) -> None: ...

    check_json(f.parameters)
    assert f.parameters["required"] == []


def test_a_left_out_argument_has_the_very_default_of_the_function():
    @tool
    def f(x: Any = _MISSING) -> None: ...

    assert f.parse("{}").values["x"] is _MISSING


# --- what is refused, when it is made


def _star(*args: int) -> None: ...
def _stars(**kwargs: int) -> None: ...
def _positional(x: int, /) -> None: ...
def _socket(x: type(sys.stdout)) -> None: ...  # type: ignore[valid-type]
def _unknown(x: Unheard) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def _method(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "field"),
    [
        (_star, "args"),
        (_stars, "kwargs"),
        (_positional, "x"),
        (_socket, "x"),
        (_unknown, "x"),
        (_method, "self"),
    ],
)
def test_a_parameter_that_no_json_can_be_passed_to_is_refused_by_name(function, field):
    with pytest.raises(InvalidInput, match=rf"{function.__name__}.*'{field}'"):
        tool(function)


def _generator():
    yield 1


async def _async_generator():
    yield 1


@pytest.mark.parametrize("function", [_generator, _async_generator])
def test_a_generator_function_is_refused(function):
    with pytest.raises(InvalidInput, match="generator"):
        tool(function)


@pytest.mark.parametrize("thing", [3, "f", print, Point, read_file])
def test_what_is_not_a_function_is_refused(thing):
    with pytest.raises(InvalidInput, match="not a function"):
        tool(thing)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, True, "3"])
@pytest.mark.parametrize("option", ["timeout", "abandon_after"])
def test_seconds_that_are_not_positive_are_refused(option, seconds):
    with pytest.raises(InvalidInput, match=rf"_plain.*{option}"):
        tool(**{option: seconds})(_plain)


@pytest.mark.parametrize("name", ["", " ", "a b", "a\n", "x" * 129, "\ud800", 3])
def test_a_bad_name_is_refused(name):
    with pytest.raises(InvalidInput, match="name"):
        tool(name=name)(_plain)


def test_a_lambda_needs_a_name():
    with pytest.raises(InvalidInput, match="lambda"):
        tool(lambda x: x)
    assert tool(name="same")(lambda x: x).name == "same"


@pytest.mark.parametrize("name", ["calendar.read", "calendar/read", "n" * 100, "résumé"])
def test_names_beyond_one_providers_alphabet_are_left_to_the_dialects(name):
    assert tool(name=name)(_plain).name == name


async def _async_predicate(arguments):
    return True


class _AsyncCallable:
    async def __call__(self, arguments):
        return True


@pytest.mark.parametrize("parallel", [_async_predicate, _AsyncCallable(), "yes", 1, None])
def test_parallel_is_a_boolean_or_a_synchronous_function(parallel):
    with pytest.raises(InvalidInput, match=r"_plain.*parallel"):
        tool(parallel=parallel)(_plain)


@pytest.mark.parametrize("description", [3, "a\0b", "\ud800"])
def test_a_description_that_cannot_be_stored_is_refused(description):
    with pytest.raises(InvalidInput, match=r"_plain.*description"):
        tool(description=description)(_plain)


async def _async_plain() -> None: ...


def test_a_worker_process_cannot_run_what_it_cannot_find():
    def nested() -> None: ...

    for function in (nested, _async_plain):
        with pytest.raises(InvalidInput, match=rf"{function.__name__}.*isolation"):
            tool(isolation="process")(function)
    with pytest.raises(InvalidInput, match="isolation"):
        tool(isolation="process", name="x")(lambda: None)


def test_an_unknown_isolation_is_refused():
    with pytest.raises(InvalidInput, match="isolation"):
        tool(isolation="vm")(_plain)  # type: ignore[call-overload]


# --- reading arguments


@pytest.mark.parametrize("text", ["", " ", "\n\t", "{}"])
def test_blank_arguments_are_no_arguments(text):
    assert tool(_async_plain).parse(text) == ParsedArguments({}, {})


def test_parsed_arguments_are_the_raw_object_and_the_values():
    parsed = read_file.parse('{"path": "a"}')
    assert parsed.raw == {"path": "a"}
    assert parsed.values == {"path": "a", "lines": 10}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"path": ', "not valid JSON"),
        ("[1]", "must be a JSON object, not an array"),
        ('"path"', "must be a JSON object, not a string"),
        ("null", "must be a JSON object, not null"),
        ("true", "must be a JSON object, not a boolean"),
        ("3", "must be a JSON object, not a number"),
        ('{"path": NaN}', "NaN is not JSON"),
        ('{"path": -Infinity}', "-Infinity is not JSON"),
        ('{"path": 1e999}', "1e999 is too large"),
        ('{"path": "a", "path": "b"}', "stands twice"),
        ('{"path": ' + "1" * 5000 + "}", "not valid JSON"),
        ('{"path": ' + "[" * 100_000, "not valid JSON"),
        ("{}", "path: Field required"),
        ('{"path": 3}', "path: Input should be a valid string"),
        ('{"path": "a", "line": 1}', "line: Extra inputs are not permitted"),
        ('{"path": "\\ud800"}', "Invalid JSON"),
        ('{"path": "\ud800"}', "do not fit"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_a_text_that_says_why(text, said):
    with pytest.raises(InvalidArguments, match=said):
        read_file.parse(text)


def test_each_fault_has_a_line_of_its_own():
    @tool
    def f(p: Point, n: int) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        f.parse('{"p": {"x": "a"}, "n": []}')
    head, *lines = str(caught.value).splitlines()
    assert head == "The arguments do not fit:"
    assert [line.split(":")[0] for line in lines] == ["p.x", "n"]


def test_a_long_list_of_faults_is_cut():
    @tool
    def f(numbers: list[int]) -> None: ...

    with pytest.raises(InvalidArguments) as caught:
        f.parse('{"numbers": [' + ",".join(['"x"'] * 50) + "]}")
    assert len(str(caught.value).splitlines()) == 22
    assert str(caught.value).endswith("and 30 more")


def _explode(value: int) -> int:
    raise ZeroDivisionError("boom")


def test_a_validator_that_fails_is_a_fault_of_the_arguments():
    @tool
    def f(x: Annotated[int, AfterValidator(_explode)]) -> None: ...

    with pytest.raises(InvalidArguments, match="ZeroDivisionError: boom"):
        f.parse('{"x": 1}')


def test_rewritten_arguments_are_read_the_same_way():
    arguments = {"path": "a", "lines": 3}
    parsed = read_file.validate(arguments)
    assert parsed == ParsedArguments(arguments, arguments)
    assert parsed.raw is not arguments


@pytest.mark.parametrize("text", ['{"path": "a\\u0000b"}', '{"path": "a", "lines": -0}', '{"path": "é"}'])
def test_what_can_be_read_can_be_read_again(text):
    parsed = read_file.parse(text)
    assert read_file.validate(parsed.raw) == parsed


@pytest.mark.parametrize("arguments", [{"path": object()}, {"path": math.nan}, {1: "a"}, [], None, {(): 1}])
def test_rewritten_arguments_must_be_a_json_object(arguments):
    with pytest.raises(InvalidArguments):
        read_file.validate(arguments)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@tool
def _typed(a: int, b: list[Point], c: Colour | None = None, d: dict[int, float] | str = "") -> None: ...


@given(st.text() | st.text(alphabet='{}[]":,abcd0123456789.eE-\\u \ud800') | _json.map(str))
def test_parsing_any_text_raises_nothing_but_invalid_arguments(text):
    for made in (_typed, read_file):
        try:
            made.parse(text)
        except InvalidArguments as error:
            check_json({str(error): "is a text that can be stored"})


@given(st.dictionaries(st.sampled_from("abcd"), _json))
def test_validating_any_object_raises_nothing_but_invalid_arguments(arguments):
    for made in (_typed, read_file):
        try:
            made.validate(arguments)
        except InvalidArguments as error:
            check_json(str(error))


# --- classification


def test_a_tool_is_exclusive_unless_it_says_otherwise():
    assert read_file.classify(raw({})) == "exclusive"


def test_a_constant_says_parallel_for_all_arguments():
    assert fetch_page.classify(raw({})) == "parallel"


def test_a_predicate_sees_the_values_defaults_included():
    made = tool(parallel=lambda a: a["lines"] == 10)(read_file.function)
    assert made.classify(made.parse('{"path": "a"}')) == "parallel"
    assert made.classify(made.parse('{"path": "a", "lines": 2}')) == "exclusive"


@pytest.mark.parametrize("answer", [1, "yes", [1], None, False, _MISSING])
def test_only_exactly_true_means_parallel(answer):
    assert tool(parallel=lambda _: answer)(_plain).classify(raw({})) == "exclusive"


def test_a_predicate_that_raises_means_exclusive():
    assert tool(parallel=lambda a: a["missing"])(_plain).classify(raw({})) == "exclusive"


def test_a_predicate_that_gives_a_coroutine_means_exclusive():
    sneaky = tool(parallel=lambda a: _async_predicate(a))  # noqa: PLW0108 - it must not look async
    assert sneaky(_plain).classify(raw({})) == "exclusive"


def test_a_predicate_cannot_add_or_remove_arguments():
    parsed = raw({"x": 1})
    tool(parallel=lambda a: a.clear() is None)(_plain).classify(parsed)
    assert parsed.values == {"x": 1}


# --- tools without a Python function


async def _remote(arguments):
    return arguments


def test_a_tool_can_be_made_of_its_schema():
    schema = {"type": "object", "properties": {"q": {"type": "string"}}}
    made = Tool.from_schema("search", "Search.", schema, _remote, parallel=True, timeout=3)
    assert (made.name, made.description, made.parameters) == ("search", "Search.", schema)
    assert (made.runs, made.parallel, made.timeout) == ("task", True, 3)


async def test_a_tool_of_a_schema_takes_the_raw_arguments():
    made = Tool.from_schema("search", "", {}, _remote)
    parsed = made.parse('{"q": 1, "any thing": [2]}')
    assert parsed.values == {"q": 1, "any thing": [2]}
    assert await made.function(**parsed.values) == {"q": 1, "any thing": [2]}


def test_arguments_of_a_schema_are_only_checked_to_be_an_object():
    made = Tool.from_schema("search", "", {"type": "object", "required": ["q"]}, _remote)
    assert made.parse("").raw == {}
    with pytest.raises(InvalidArguments):
        made.parse("[]")


def test_a_schema_is_copied():
    schema = {"type": "object", "properties": {}}
    made = Tool.from_schema("search", "", schema, _remote)
    schema["properties"]["q"] = {}
    assert made.parameters == {"type": "object", "properties": {}}


@pytest.mark.parametrize("schema", [{"type": "array"}, {"x": math.nan}, [], None, {"x": object()}])
def test_a_schema_that_is_not_one_of_an_object_is_refused(schema):
    with pytest.raises(InvalidInput, match=r"search.*parameters"):
        Tool.from_schema("search", "", schema, _remote)


def test_the_function_of_a_schema_must_be_async():
    with pytest.raises(InvalidInput, match=r"search.*function"):
        Tool.from_schema("search", "", {}, print)  # type: ignore[arg-type]


# --- Toolbox


def test_a_toolbox_finds_tools_by_name():
    box = Toolbox([read_file, fetch_page])
    assert box.get("fetch") is fetch_page
    assert box.get("fetch_page") is None


def test_a_toolbox_keeps_the_order():
    box = Toolbox([fetch_page, read_file])
    assert [spec.name for spec in box.specs()] == ["fetch", "read_file"]
    assert list(box) == [fetch_page, read_file]
    assert len(box) == 2


def test_a_toolbox_may_be_empty():
    assert Toolbox().specs() == ()


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(InvalidInput, match=r"tools\[1\].*'read_file'"):
        Toolbox([read_file, tool(name="read_file")(_plain)])


@pytest.mark.parametrize("thing", [_plain, "read_file", None, Point])
def test_a_toolbox_takes_only_tools(thing):
    with pytest.raises(InvalidInput, match=r"tools\[1\]"):
        Toolbox([read_file, thing])
