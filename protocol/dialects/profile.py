"""Profiles: what differs between servers that speak one dialect.

A `Profile` is a value. Renderers, readers, parsers and checkers take it and know no vendor by name. `PROFILES` holds
the ready ones; a server of one's own is `attrs.evolve(PROFILES["compatible"], provider="mine", model="m-1")`.

Four kinds stand in the table:

- vendors, by their rule books and by their services' errors: openai, openai-responses, anthropic, deepseek, mistral;
- `compatible`: a server of Chat Completions of which nothing more is known than that (Ollama, vLLM, llama.cpp, LM
  Studio, gateways). It is what a host gets that is not one of the vendors', and asks of no server what only OpenAI has;
- `strict-chat`, `strict-responses`, `strict-anthropic`: the intersection, which all known servers of the dialect take;
- `any-chat`, `any-responses`, `any-anthropic`: the least that any server of the dialect asks. They give a transcript
  back as it was read, byte for byte, wherever its contract allows.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final, Literal, TypeAlias

from attrs import evolve, frozen

__all__ = ["BEDROCK_CALL_ID", "PROFILES", "DialectName", "LabelRule", "MediaKind", "MediaLimits", "Profile"]

DialectName: TypeAlias = Literal["chat", "responses", "anthropic"]
"""The dialects that quiesce speaks: OpenAI Chat Completions, OpenAI Responses, Anthropic Messages."""

MediaKind: TypeAlias = Literal["image", "document", "audio"]
"""What a message can carry beside text."""


@frozen(slots=False, cache_hash=True)
class LabelRule:
    """Which labels a server takes: each character one of `alphabet` (the inside of a regex class), and how many."""

    alphabet: str
    max_length: int | None = None
    min_length: int = 1

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(f"[{self.alphabet}]{{{self.min_length},{self.max_length or ''}}}")

    @property
    def pattern(self) -> str:
        """The rule as one regular expression, anchored at both ends."""
        return rf"\A(?:{self._pattern.pattern})\Z"

    def allows(self, label: str) -> bool:
        """Whether `label` can be sent as it is."""
        return self._pattern.fullmatch(label) is not None


@frozen(kw_only=True)
class MediaLimits:
    """How long a piece of media may be, for each kind: in characters of its text in the request, which is base64 with
    whatever the dialect puts around it. None: no limit is known.
    """

    image: int | None = None
    document: int | None = None
    audio: int | None = None

    def allow(self, kind: MediaKind, length: int) -> bool:
        """Whether `length` characters of that kind go."""
        most = self.of(kind)
        return most is None or length <= most

    def of(self, kind: MediaKind) -> int | None:
        """The most characters of that kind."""
        return {"image": self.image, "document": self.document, "audio": self.audio}[kind]


@frozen(kw_only=True)
class Profile:
    """One server, as far as its contract decides what a request may look like. Sources stand with each field.

    The rules that all servers of a dialect share (one result per call, and where it stands) are not fields: they are
    the dialect.
    """

    name: str
    """The key in `PROFILES`, and what `--profile` takes."""

    dialect: DialectName
    """The language that it speaks."""

    provider: str
    """Whose server it is: what `message.source["provider"]` says of an answer that came from it. A vendor that speaks
    two dialects has a name for each, because what one endpoint wants back means nothing to the other."""

    model: str | None = None
    """The model that is asked. `replay` data go back only to the provider and the model that made them."""

    call_id: LabelRule
    """Which call ids can be sent; others are replaced, alike at the call and at its result.

    Chat 1..40 characters (service errors of OpenAI), Responses 1..64, Anthropic `[a-zA-Z0-9_-]+` without a maximum
    (schemas), Mistral nine alphanumerics (validator from version 3 on)."""

    unique_call_ids: bool = True
    """Whether a call id may stand in one message of the request only (Anthropic and strict Chat servers). Within one
    message ids are always distinct."""

    tool_name: LabelRule
    """Which names of tools can be sent; others are replaced, in calls as in the tools on offer."""

    arguments: Literal["any", "object"] = "any"
    """What the argument text of a call must be: anything, or the JSON text of an object. OpenAI does not look; vLLM,
    SGLang, Moonshot and DashScope parse. Arguments that do not parse travel inside an object for those. Dialects where
    arguments are an object and no text know no other way."""

    input_roles: frozenset[str] = frozenset({"system"})
    """Which roles input may have beside `user`; input of another role is a user's. OpenAI alone knows `developer`."""

    media: frozenset[MediaKind] = frozenset({"image", "document", "audio"})
    """What a user message can carry beside text; the rest becomes a line of text that names it."""

    max_media: MediaLimits = MediaLimits()
    """How long one piece of media may be; what is longer becomes a line of text that says so.

    Responses 20 971 520 characters of an image's data URL, 73 400 320 of a file's (schema). Anthropic 5 242 880
    characters of an image's base64 (service errors: anthropics/claude-code#10612, lobehub/lobehub#14711)."""

    images_in_results: bool = False
    """Whether media can ride in the result of a call. Where not, they go to a user message behind the whole batch."""

    text_parts: bool = True
    """Whether content may be a list of texts (Chat). Where not, texts that come together are joined by blank lines:
    some servers take nothing but a string."""

    null_content: bool = True
    """Whether `content` may be null, or missing, in an answer that is nothing but calls (Chat; the schema says so).
    Ollama refuses null (SAIL-Research-Lab/cheetahclaws#72, pydantic-ai#5206), others a missing one; an empty string
    passes everywhere."""

    reasoning_content: bool = False
    """Whether answers with calls carry `reasoning_content`, the plain text of what that provider's model thought
    (DeepSeek, thinking mode). It goes back to the provider that made it only; where there is none to give back, a
    sentence stands for it, because the server refuses a call without."""

    merge: bool = True
    """Whether adjacent messages of one role become one message. The vendors disagree whether they may stand; a merged
    one may everywhere. Results are not concerned."""

    starts_with_user: bool = False
    """Whether the first message (system messages aside) must be a user's (Anthropic; templates of open models)."""

    ends_with_input: bool = False
    """Whether the last message must be a user's or a result (Mistral's validator; newer Anthropic models, which take
    no answer to go on with)."""

    verbatim: bool = False
    """Whether blank text, and the order of what an answer holds, stay as they were read from a transcript of this
    provider, wherever the dialect itself allows them."""

    max_text: int | None = None
    """How many characters one text may have; what is beyond is cut off, visibly. None: no limit is known. Responses
    10 485 760 (schema)."""

    @property
    def identity(self) -> tuple[str, str | None]:
        """Provider and model: who gets `replay` data back."""
        return (self.provider, self.model)


BEDROCK_CALL_ID: Final = LabelRule("a-zA-Z0-9_.:-", 64)
"""Bedrock Converse is not spoken here; its rule for call ids is, for gateways that put it behind another dialect."""

_PRINTABLE_40: Final = LabelRule(r"!-~", 40)
_PRINTABLE_64: Final = LabelRule(r"!-~", 64)
_ANYTHING: Final = LabelRule(r"\s\S")
_WORD: Final = "a-zA-Z0-9_-"
_NINE: Final = LabelRule("a-zA-Z0-9", 9, 9)

_OPENAI: Final = Profile(
    name="openai",
    dialect="chat",
    provider="openai",
    call_id=_PRINTABLE_40,
    tool_name=LabelRule(_WORD, 64),
    input_roles=frozenset({"system", "developer"}),
)
_DEEPSEEK: Final = evolve(
    _OPENAI,
    name="deepseek",
    provider="deepseek",
    arguments="object",
    input_roles=frozenset({"system"}),
    media=frozenset(),
    text_parts=False,
    reasoning_content=True,
)
_MISTRAL: Final = evolve(
    _OPENAI,
    name="mistral",
    provider="mistral",
    call_id=_NINE,
    arguments="object",
    input_roles=frozenset({"system"}),
    media=frozenset({"image"}),
    ends_with_input=True,
)
_COMPATIBLE: Final = evolve(
    _OPENAI,
    name="compatible",
    provider="compatible",
    arguments="object",
    input_roles=frozenset({"system"}),
    media=frozenset({"image"}),
    null_content=False,
)
_STRICT_CHAT: Final = evolve(
    _DEEPSEEK,
    name="strict-chat",
    provider="strict-chat",
    call_id=_NINE,
    null_content=False,
    reasoning_content=False,
    starts_with_user=True,
    ends_with_input=True,
)
_RESPONSES: Final = Profile(
    name="openai-responses",
    dialect="responses",
    provider="openai-responses",
    call_id=_PRINTABLE_64,
    tool_name=LabelRule(_WORD, 128),
    input_roles=frozenset({"system", "developer"}),
    media=frozenset({"image", "document"}),
    images_in_results=True,
    max_media=MediaLimits(image=20_971_520, document=73_400_320),
    max_text=10_485_760,
)
_STRICT_RESPONSES: Final = evolve(
    _RESPONSES,
    name="strict-responses",
    provider="strict-responses",
    call_id=_NINE,
    tool_name=LabelRule(_WORD, 64),
    arguments="object",
    media=frozenset(),
    images_in_results=False,
    starts_with_user=True,
    ends_with_input=True,
)
_ANTHROPIC: Final = Profile(
    name="anthropic",
    dialect="anthropic",
    provider="anthropic",
    call_id=LabelRule(_WORD),
    tool_name=LabelRule(_WORD, 128),
    arguments="object",
    input_roles=frozenset(),
    media=frozenset({"image", "document"}),
    max_media=MediaLimits(image=5_242_880),
    images_in_results=True,
    starts_with_user=True,
    ends_with_input=True,
)
_STRICT_ANTHROPIC: Final = evolve(
    _ANTHROPIC,
    name="strict-anthropic",
    provider="strict-anthropic",
    call_id=_NINE,
    tool_name=LabelRule(_WORD, 64),
    media=frozenset(),
    images_in_results=False,
)


def _permissive(base: Profile, name: str) -> Profile:
    """The least that any server of the dialect asks for."""
    return evolve(
        base,
        name=name,
        provider=name,
        call_id=base.call_id if base.dialect == "anthropic" else _ANYTHING,
        unique_call_ids=base.dialect == "anthropic",
        tool_name=_ANYTHING,
        arguments="object" if base.dialect == "anthropic" else "any",
        media=frozenset({"image", "document", "audio"}),
        max_media=MediaLimits(),
        images_in_results=True,
        reasoning_content=base.dialect == "chat",
        merge=base.dialect == "anthropic",
        ends_with_input=False,
        verbatim=True,
        max_text=None,
    )


PROFILES: Final[dict[str, Profile]] = {
    profile.name: profile
    for profile in (
        _OPENAI,
        _RESPONSES,
        _ANTHROPIC,
        _DEEPSEEK,
        _MISTRAL,
        _COMPATIBLE,
        _STRICT_CHAT,
        _STRICT_RESPONSES,
        _STRICT_ANTHROPIC,
        _permissive(_OPENAI, "any-chat"),
        _permissive(_RESPONSES, "any-responses"),
        _permissive(_ANTHROPIC, "any-anthropic"),
    )
}
"""The ready profiles, by name."""
