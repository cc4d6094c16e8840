"""Over sixty types that a program may ask for, by name."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from ipaddress import IPv4Address
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Optional, TypeVar, Union
from uuid import UUID

from pydantic import AnyUrl, BaseModel, ConfigDict, Field, RootModel, conint, constr
from typing_extensions import TypedDict

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(enum.Enum):
    ONE = 1
    TWO = "two"


class Empty(BaseModel):
    pass


class Verdict(BaseModel):
    """What the judge says."""

    guilty: bool
    years: int
    reason: str


class Described(BaseModel):
    score: int = Field(description="From 0 to 10.", ge=0, le=10)
    note: str = Field("none", description="Anything else.", max_length=20)


class Defaults(BaseModel):
    a: int = 3
    b: str | None = None
    c: list[int] = Field(default_factory=list)


class Point(BaseModel):
    x: float
    y: float


class Line(BaseModel):
    start: Point
    end: Annotated[Point, Field(description="Where it ends.")]
    color: Color = Color.RED


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Owner(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Either(BaseModel):
    pet: Cat | Dog


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Chain(BaseModel):
    value: int
    next: Optional[Chain] = None  # noqa: UP045 - the older spelling


class Aliased(BaseModel):
    first_name: str = Field(alias="firstName")


class Forbidding(BaseModel):
    model_config = ConfigDict(extra="forbid")
    a: int


class Allowing(BaseModel):
    model_config = ConfigDict(extra="allow")
    a: int


class Titled(BaseModel):
    model_config = ConfigDict(title="Another title")
    a: int = Field(title="The A")


class Box(BaseModel, Generic[T]):
    content: T


class Numbers(RootModel[list[int]]):
    pass


class Formats(BaseModel):
    day: date
    at: datetime
    clock: time
    span: timedelta
    id: UUID
    address: IPv4Address


class Bounds(BaseModel):
    a: int = Field(gt=0, lt=10)
    b: float = Field(multiple_of=0.5)
    c: str = Field(min_length=2, pattern="^[a-z]+$")
    d: list[int] = Field(min_length=1, max_length=3)
    e: list[int] = Field(min_length=2)


class Examples(BaseModel):
    a: int = Field(examples=[1, 2])


class Money(BaseModel):
    euros: Decimal


class Base(BaseModel):
    a: int


class Derived(Base):
    b: str


class Deep(BaseModel):
    lines: list[Line]
    boxes: list[Box[int]]
    pairs: list[list[Point]]


@dataclass
class Plain:
    a: int
    b: str = "x"


@dataclass
class Nested:
    plain: Plain
    others: list[Plain] = field(default_factory=list)


@dataclass
class Documented:
    """A dataclass with words."""

    a: Annotated[int, Field(description="How many.")]


class Movie(TypedDict):
    name: str
    year: int


class Partial(TypedDict, total=False):
    name: str
    year: int


class Optionals(TypedDict):
    name: str
    year: NotRequired[int]


class Movies(TypedDict):
    movies: list[Movie]


class Pair(NamedTuple):
    a: int
    b: str


class Mail(BaseModel):
    to: str = Field(json_schema_extra={"format": "email"})


class Link(BaseModel):
    url: AnyUrl


class Filed(BaseModel):
    path: Path


class Free(BaseModel):
    scores: dict[str, int]


class Loose(BaseModel):
    data: Any


class Bare(BaseModel):
    items: list  # type: ignore[type-arg]


class Tupled(BaseModel):
    pair: tuple[int, str]


class Unique(BaseModel):
    tags: set[str]


class Ruled(BaseModel):
    scores: dict[Annotated[str, Field(pattern="^[a-z]$")], int]


class Raw(BaseModel):
    data: bytes


TAKEN: dict[str, Any] = {
    # Types that both providers take.
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "none": None,
    "literal": Literal["a", "b"],
    "literal_one": Literal["a"],
    "literal_int": Literal[1, 2],
    "literal_mixed": Literal["a", 1, None],
    "enum": Color,
    "int_enum": Level,
    "mixed_enum": Mixed,
    "optional": int | None,
    "old_optional": Optional[str],  # noqa: UP045
    "union": int | str,
    "old_union": Union[int, str, None],  # noqa: UP007
    "union_of_models": Cat | Dog,
    "union_tagged": Annotated[Cat | Dog, Field(discriminator="kind")],
    "list_of_int": list[int],
    "list_of_models": list[Verdict],
    "list_of_lists": list[list[str]],
    "list_of_unions": list[int | str],
    "list_of_literals": list[Literal["x", "y"]],
    "sequence": Sequence[int],
    "constrained": Annotated[int, Field(ge=1, le=5)],
    "conint": conint(gt=3),
    "constr": constr(min_length=2),
    "date": date,
    "datetime": datetime,
    "time": time,
    "timedelta": timedelta,
    "uuid": UUID,
    "ipv4": IPv4Address,
    "empty": Empty,
    "verdict": Verdict,
    "described": Described,
    "defaults": Defaults,
    "point": Point,
    "line": Line,
    "cat": Cat,
    "owner": Owner,
    "either": Either,
    "aliased": Aliased,
    "forbidding": Forbidding,
    "titled": Titled,
    "box_of_int": Box[int],
    "box_of_model": Box[Verdict],
    "box_of_list": Box[list[Point]],
    "root_model": Numbers,
    "formats": Formats,
    "bounds": Bounds,
    "examples": Examples,
    "derived": Derived,
    "deep": Deep,
    "dataclass": Plain,
    "nested_dataclass": Nested,
    "documented_dataclass": Documented,
    "list_of_dataclasses": list[Plain],
    "typed_dict": Movie,
    "partial_typed_dict": Partial,
    "optional_keys": Optionals,
    "nested_typed_dict": Movies,
    "mail": Mail,
    "money": Money,
}

REFUSED: dict[str, tuple[Any, str, str]] = {
    # type, the place that OpenAI's rules name ("" for none), the place that Anthropic's name
    "recursive": (Node, "", "Node.children[]"),
    "recursive_optional": (Chain, "", "Chain.next"),
    "free_keys": (Free, "Free.scores", "Free.scores"),
    "dict": (dict[str, int], "Answer", "Answer"),
    "any": (Loose, "Loose.data", "Loose.data"),
    "bare_list": (Bare, "Bare.items[]", "Bare.items[]"),
    "tuple": (Tupled, "Tupled.pair", ""),
    "named_tuple": (Pair, "Pair.value", ""),
    "set": (Unique, "Unique.tags", ""),
    "url": (Link, "Link.url", ""),
    "path": (Filed, "Filed.path", ""),
    "bytes": (Raw, "Raw.data", ""),
    "open_model": (Allowing, "Allowing", ""),
    "ruled_keys": (Ruled, "Ruled.scores", "Ruled.scores"),
    "in_a_list": (list[Free], "Answer.value[].scores", "Answer.value[].scores"),
    "in_a_union": (Cat | Free, "Answer.value.scores", "Answer.value.scores"),
}
