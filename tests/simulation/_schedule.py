"""What happens in one run, as plain data: who does what, and which faults hit them.

Owns: the values and how a seed draws them. Must never know: how they are carried out.

Everything that a run needs stands in its `Schedule`, so that the same schedule always runs in the same way,
and a smaller one can be tried by leaving something out.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

__all__ = ["ACTS", "FAULTS", "SAYS", "WIRES", "Act", "Fault", "Schedule", "draw"]

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
    "refused": 2,  # a message that the provider refuses, and with it each request that has it
    "cancel": 2,  # a turn that runs is cancelled; its save comes some time later
    "redact": 1,  # what only one message or event says is taken out of the conversation
    "erase": 1,
    "undo": 1,  # the newest cut
    "update": 1,  # title and metadata
    "stop": 1,  # the stop flag is set
    "withdraw": 0,  # an event is taken back; only where turns steer, see `_with_withdrawals`
    "convert": 1,  # a message through a chat of another provider API
    "fallback": 1,  # a message while the provider is down, and there is a second one
    "recall": 1,  # a message whose model searches what was cut out
    "hand_off": 1,  # a message whose model asks another conversation
    "edit": 0,  # a message in place of an earlier one; see `_with_edits`
}
"""What workers do, and how often compared with the others."""

EDITS: Final = (18, 39)
"""The schedules of seeds that end so, of each 50, have edits. In the second ones turns steer."""

SAYS: Final = frozenset(
    ("send", "again", "refused", "convert", "fallback", "recall", "hand_off", "edit", "final", "inner")
)
"""Acts that say a message. "final" delivers at the end of a run, "inner" is what a hand-off says."""

WITH_TOOLS: Final = frozenset(("send", "convert", "fallback", "recall", "hand_off"))
"""Messages whose model may call tools."""

FIRST: Final = ("send",) * 12 + ("refused", "convert", "fallback", "recall", "hand_off", "append", "update")
"""What a schedule begins with."""

APPROVAL: Final = ("send", "answer", "answer_again")
"""How some schedules begin: with a call that waits, and an answer that is delivered twice."""

CUT: Final = ("send", "send", "compact", "")
"""How others begin: with a cut, and one of `AFTER_CUT`."""

AFTER_CUT: Final = ("undo", "redact")


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
        wire: The provider API of the worker's chat; "" for that of the schedule.
        rounds: The tools that the model calls, reply by reply.
        has_id: The message has a `turn_id`, and is delivered until it was answered.
        target: For "again", "redact", "withdraw" and "edit": the id of the message or event.
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
    wire: str = ""

    @property
    def says(self) -> bool:
        """True if it says a message."""
        return self.kind in SAYS

    @property
    def is_refused(self) -> bool:
        """True if the provider refuses what it says."""
        return self.kind == "refused" or (self.kind == "edit" and self.choice < 0.3)

    @property
    def keeps_branch(self) -> bool:
        """True for an edit that leaves what it replaces as a branch."""
        return self.kind == "edit" and int(self.choice * 8) % 2 == 1


class Schedule(NamedTuple):
    """One run. `seed` decides whose step comes next and how long things take.

    `leases`: the store has leases. `combines`: and it loads with a lease, and releases with a save.
    `parts`: the archive of cuts is kept beside the state, as with ``parts="store"``.
    `behind`: conversations are made with ``concurrent_turns=True``.
    `crowd`: how many workers may be at work at a time. `is_tight`: the limits of a state are small.
    `stops`: turns look at the stop flag. `converts`: a state of another provider API is converted.
    `fallback`: the provider API of a second backend; "" for none. `recalls`: turns cut long histories, and
    the model can search what was cut. `steers`: workers give their messages to the turn that runs.
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
    stops: bool = False
    converts: bool = False
    fallback: str = ""
    recalls: bool = False
    steers: bool = False

    @property
    def redacts(self) -> bool:
        """True if something is taken out. Then each message and each event says something of its own."""
        return any(act.kind == "redact" for act in self.acts)

    def archives(self, act: Act) -> bool:
        """True if what this act cuts out goes into the archive."""
        if self.is_tight:
            return False
        return self.parts or act.choice >= 0.5 if act.kind == "compact" else self.recalls


def draw(seed: int) -> Schedule:
    """The schedule of a seed."""
    random = Random(seed)
    count = random.choice((2, 2, 3, 3, 4, 4, 5))
    acts: list[Act] = []
    said: list[int] = []
    messages: list[int] = []
    keys = ["k"]
    wire = WIRES[seed % 3]
    others = [other for other in WIRES if other != wire]
    is_faulty = random.random() < 0.9
    theme = random.random()
    is_about_approval = theme < 0.15
    plot = APPROVAL if is_about_approval else CUT if theme < 0.2 else ()
    for id in range(1, max(count, len(plot)) + is_about_approval + 1):
        kind = _one_of(random, ACTS) if acts else random.choice(FIRST)
        if id <= len(plot):
            kind = plot[id - 1] or random.choice(AFTER_CUT)
        if (kind == "again" and not messages) or (kind == "redact" and not said):
            kind = "send"
        faults = _faults(random) if is_faulty else ()
        target = random.choice({"again": messages, "redact": said}.get(kind, [0]))
        key = random.choice(keys)
        if target:
            key = next(act.key for act in acts if act.id == target)
        has_id = random.random() < 0.85
        if kind in WITH_TOOLS and has_id:
            messages.append(id)
        if kind in WITH_TOOLS or kind in ("append", "refused"):
            said.append(id)
        rounds = _rounds(random, kind, asks=is_about_approval and id == 1) if kind in WITH_TOOLS else ()
        acts.append(
            Act(
                kind=kind,
                id=id,
                key=key,
                save=random.choice(("turn", "checkpoint")),
                rounds=rounds,
                has_id=has_id,
                target=target,
                choice=random.random(),
                faults=faults,
                wire=random.choice(others) if kind == "convert" else "",
            )
        )
        if kind == "fork":
            keys.append(f"f{id}")
    kinds = {act.kind for act in acts}
    leases = random.random() < 0.6
    steers = seed % 10 == 9
    if steers and leases:
        # From numbers of its own: the schedules of other seeds stay as they are.
        acts = _with_withdrawals(Random(-seed), acts)
    if seed % 50 in EDITS and (edited := _with_edits(Random(-seed), acts)) != acts:
        acts = edited
        kinds |= {"fallback"} if seed // 50 % 2 else set()
    return Schedule(
        seed=seed,
        wire=wire,
        leases=leases,
        combines=seed // 3 % 2 == 0,
        behind=random.random() < 0.15,
        crowd=random.choice((1, 2, 2, 3, 3, 4)),
        is_tight=random.random() < 0.1 and "recall" not in kinds,
        acts=tuple(acts),
        parts=seed // 6 % 2 == 0,
        stops="stop" in kinds,
        converts="convert" in kinds or "fallback" in kinds,
        fallback=random.choice((wire, *others)) if "fallback" in kinds else "",
        recalls="recall" in kinds,
        steers=steers,
    )


def _with_withdrawals(random: Random, acts: list[Act]) -> list[Act]:
    """The acts, with an event or two more, and with an attempt to take each event back."""
    made = list(acts)
    for id in range(101, 101 + random.choice((1, 1, 2))):
        made.insert(random.randint(1, len(made)), Act(kind="append", id=id, choice=random.random()))
    for act in [act for act in made if act.kind == "append"]:
        at = random.randint(made.index(act) + 1, len(made))
        faults = _faults(random) if random.random() < 0.3 else ()
        id, choice = 100 + len(made), random.random()
        made.insert(at, Act("withdraw", id + 50, act.key, target=act.id, choice=choice, faults=faults))
    return made


def _with_edits(random: Random, acts: list[Act]) -> list[Act]:
    """The acts, with an edit or two of the messages that have a turn id."""
    made = list(acts)
    said = [act for act in made if act.says and act.has_id and act.kind != "again"]
    for id in range(201, 201 + random.choice((1, 1, 2))) if said else ():
        target = random.choice(said)
        edit = Act(
            "edit",
            id,
            target.key,
            save=random.choice(("turn", "checkpoint")),
            rounds=_rounds(random, "send", asks=False),
            has_id=random.random() < 0.7,
            target=target.id,
            choice=random.random(),
            faults=_faults(random),
        )
        made.insert(random.randint(made.index(target) + 1, len(made)), edit)
    return made


def _one_of(random: Random, weights: dict[str, int]) -> str:
    return random.choices(list(weights), list(weights.values()))[0]


def _rounds(random: Random, kind: str, *, asks: bool) -> tuple[tuple[str, ...], ...]:
    """Which tools the model calls, reply by reply: `pay` and `ask` must not run twice, `look` may.

    `asks`: it begins with a call that has to be approved.
    """
    if kind in ("recall", "hand_off"):
        call = "recall" if kind == "recall" else "other"
        return random.choice((((call,),), ((call, "pay"),), ((call,), ("pay",)), (("pay",), (call,))))
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
