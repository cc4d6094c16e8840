"""What happens in one run, as plain data: who does what, and which faults hit them.

Owns: the values and how a seed draws them. Must never know: how they are carried out.

Everything that a run needs stands in its `Schedule`, so that the same schedule always runs in the same way,
and a smaller one can be tried by leaving something out.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

__all__ = ["ACTS", "FAULTS", "WIRES", "Act", "Fault", "Schedule", "draw"]

WIRES: Final = ("openai", "openai-responses", "anthropic")

FAULTS: Final = {
    "pause": 6,  # the worker stands still, and so does the renewal of its lease
    "jump": 1,  # the clock of the wall jumps
    "kill": 3,  # the process is gone before the effect …
    "kill_after": 3,  # … or when the effect has taken place
    "cancel": 2,  # Ctrl-C, a cancelled task, a reader who leaves
    "copy": 2,  # the process is forked: two copies of the worker go on
    "fail": 3,  # the store, the provider or the tool fails
    "unanswered": 4,  # it does what it was asked for, and its answer is lost
    "late": 3,  # a save takes place some time after its answer was lost
    "away": 1,  # the store is away for everybody
}
"""The kinds of faults, and how often each is drawn compared with the others."""

ACTS: Final = {
    "send": 14,
    "again": 6,  # a message is delivered once more, whatever became of it
    "append": 5,
    "answer": 7,  # the calls that wait are approved or denied
    "answer_again": 4,  # the same answers once more
    "resume": 2,
    "compact": 2,
    "rewind": 1,
    "fork": 1,
    "reset": 1,
}
"""What workers do, and how often compared with the others."""

APPROVAL: Final = ("send", "answer", "answer_again")
"""How some schedules begin: with a call that waits, and an answer that is delivered twice."""


class Fault(NamedTuple):
    """A fault that hits a worker at its `at`-th effect, or at the first one after it that it can hit.

    `amount`: seconds for a pause, a jump, a late save and a store that is away; else what is chosen by.
    """

    at: int
    kind: str
    amount: float


class Act(NamedTuple):
    """One thing that a worker does.

    Attributes:
        kind: One of `ACTS`.
        id: Names the message or the event; unique in a schedule.
        key: Which conversation.
        save: As for `Chat.conversation`.
        rounds: The tools that the model calls, reply by reply.
        has_id: The message has a `turn_id`, and is delivered until it was answered.
        target: For "again": the id of the message.
        choice: A number between 0 and 1 for what is left to choose.
        faults: What hits this worker.
    """

    kind: str
    id: int
    key: str = "k"
    save: str = "turn"
    rounds: tuple[tuple[str, ...], ...] = ()
    has_id: bool = True
    target: int = 0
    choice: float = 0.0
    faults: tuple[Fault, ...] = ()


class Schedule(NamedTuple):
    """One run. `seed` decides whose step comes next and how long things take.

    `leases`: the store has leases. `combines`: and it loads with a lease, and releases with a save.
    `parts`: the archive of cuts is kept beside the state, as with ``parts="store"``.
    `behind`: conversations are made with ``concurrent_turns=True``.
    `crowd`: how many workers may be at work at a time. `is_tight`: the limits of a state are small.
    """

    seed: int
    wire: str
    leases: bool
    combines: bool
    behind: bool
    crowd: int
    is_tight: bool
    acts: tuple[Act, ...]
    parts: bool = False


def draw(seed: int) -> Schedule:
    """The schedule of a seed."""
    random = Random(seed)
    count = random.choice((2, 2, 2, 3, 3, 4, 5))
    acts: list[Act] = []
    messages: list[int] = []
    keys = ["k"]
    is_faulty = random.random() < 0.9
    is_about_approval = random.random() < 0.15
    for id in range(1, count + 1 + is_about_approval):
        kind = _one_of(random, ACTS) if acts else "send"
        if is_about_approval and id <= len(APPROVAL):
            kind = APPROVAL[id - 1]
        if kind == "again" and not messages:
            kind = "send"
        faults = _faults(random) if is_faulty else ()
        target = random.choice(messages) if kind == "again" else 0
        key = random.choice(keys)
        if kind == "again":
            key = next(act.key for act in acts if act.id == target)
        has_id = random.random() < 0.85
        if kind == "send" and has_id:
            messages.append(id)
        acts.append(
            Act(
                kind=kind,
                id=id,
                key=key,
                save=random.choice(("turn", "checkpoint")),
                rounds=_rounds(random, asks=is_about_approval and id == 1) if kind == "send" else (),
                has_id=has_id,
                target=target,
                choice=random.random(),
                faults=faults,
            )
        )
        if kind == "fork":
            keys.append(f"f{id}")
    return Schedule(
        seed=seed,
        wire=WIRES[seed % 3],
        leases=random.random() < 0.6,
        combines=seed // 3 % 2 == 0,
        behind=random.random() < 0.15,
        crowd=random.choice((1, 2, 2, 3, 3, 4)),
        is_tight=random.random() < 0.1,
        acts=tuple(acts),
        parts=seed // 6 % 2 == 0,
    )


def _one_of(random: Random, weights: dict[str, int]) -> str:
    return random.choices(list(weights), list(weights.values()))[0]


def _rounds(random: Random, *, asks: bool) -> tuple[tuple[str, ...], ...]:
    """Which tools the model calls, reply by reply: `pay` and `ask` must not run twice, `look` may.

    `asks`: it begins with a call that has to be approved.
    """
    if asks:
        return random.choice(((("ask",),), (("ask", "pay"),), (("ask",), ("pay",))))
    replies = random.choice((0, 0, 1, 1, 1, 1, 2))
    return tuple(
        tuple(random.choices(("pay", "look", "ask"), (5, 3, 2), k=random.choice((1, 1, 2, 2, 3))))
        for _ in range(replies)
    )


def _faults(random: Random) -> tuple[Fault, ...]:
    count = random.choice((0, 1, 1, 1, 2, 3))
    return tuple(
        sorted(
            Fault(random.randrange(20), _one_of(random, FAULTS), random.choice((0.2, 0.7, 1.5, 3.0)))
            for _ in range(count)
        )
    )
