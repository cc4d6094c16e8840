"""The search behind the tool ``recall``: terms of any language, the order of passages, bounds of a page."""

from __future__ import annotations

import random
import re
import time

import msgspec
import pytest

from goaitools_py import Chat, Compactor, KeepRecentTurns, TurnLimit, event
from goaitools_py.backends.dialects import dialect_of
from goaitools_py.base.values import replace
from goaitools_py.history import recall_archive
from goaitools_py.history.ranking import MOST_TERMS, best_order, counts_of, prepared, rarest, scores, terms_of
from goaitools_py.history.recall_archive import Passage, page_of, passages_of
from goaitools_py.seal import Plain
from goaitools_py.state.state import load_state
from goaitools_py.testing import Calls, ScriptedBackend
from goaitools_py.types.tokens import text_tokens

CUTS = Compactor(TurnLimit(1), KeepRecentTurns(1), recall=True)


def _passages(*texts: str, asked: tuple[int, ...] = ()) -> list[Passage]:
    return [
        Passage(number=at + 1, date="2026-11-23", text=text, has_asked=at in asked)
        for at, text in enumerate(texts)
    ]


def _best(query: str, *texts: str) -> list[int]:
    found = [prepared(text) for text in texts]
    counts = counts_of(query, found)
    having = {at for at, count in enumerate(counts.get(rarest(counts), ())) if count}
    return best_order(scores(counts, found), having)


FOUND = [
    ("Hedgehogs", "He keeps a HEDGEHOG."),
    ("cafe", "The Café is closed."),
    ("libraries", "the LIBRARY is closed"),
    ("naive", "a nai\u0308ve plan"),
    ("strasse", "Straße"),
    ("İstanbul'da", "istanbul is far"),
    ("ıspanak", "ISPANAK"),
    ("соседи", "мой сосед"),
    ("刺猬", "我养了七只刺猬。"),
    ("ハリネズミ", "小屋でハリネズミを飼う"),
    ("鏡", "鏡の後ろ"),
    ("고슴도치", "고슴도치를 키운다"),
    ("เม่น", "เลี้ยงเม่นเจ็ดตัว"),
    ("東京tower", "the tower"),
    ("שָׁלוֹם", "שלום"),
    ("كِتَاب", "كتاب"),
    ("किताबें", "मेरी किताब यहाँ है"),
    ("order_4711", "Order 4711 is late"),
    ("ada@example.org", "write to ada@example.org"),
]


@pytest.mark.parametrize(("query", "text"), FOUND)
def test_a_query_finds_other_forms_of_its_words(query: str, text: str) -> None:
    """Case, accents, ends of words, scripts without spaces, signs between words."""
    assert _best(query, "nothing of it at all", text) == [1]


@pytest.mark.parametrize(("query", "text"), [("cat", "a category"), ("a", "apple"), ("京都", "東京は都")])
def test_a_short_word_is_no_beginning_of_another(query: str, text: str) -> None:
    """Only a word of five letters or more counts by its beginning; a pair of letters stands together."""
    assert _best(query, text) == []


def test_a_rare_word_counts_more_than_common_ones() -> None:
    """The turn with the one rare word comes before turns that have all the others."""
    texts = ["what was the name of the thing"] * 9 + ["Wilhelmine, yes"]

    assert _best("what was the name of Wilhelmine", *texts)[0] == 9


def test_of_equal_turns_the_newest_comes_first() -> None:
    assert _best("door", *["a door"] * 3) == [2, 1, 0]


def test_a_query_is_bounded() -> None:
    """A model may write anything: the terms have a most, and nothing is read as a pattern."""
    assert len(terms_of(" ".join(f"word{number:05}" * 3 for number in range(9_000)))) <= MOST_TERMS
    for query in ("(((((((", "a" * 100_000, "\\", "[^", "*" * 5_000, "\ud800", "\x00", " ", "''\"--"):
        assert page_of(_passages("a door", "b"), query).text


def test_a_turn_beside_a_hit_is_shown_and_helps_the_hit() -> None:
    """A question and its answer in two turns: both are on the page, and both count for each other."""
    talk = ["It rains."] * 4 + ["user: What is the cat called?", "assistant: Wilhelmine."] + ["It rains."] * 4

    found = page_of(_passages(*talk), "cat called")
    alone = page_of(_passages("a cat", *["It rains."] * 5, "a cat", "her cat food"), "cat food", page=1)

    assert 6 in found.numbers
    assert "Wilhelmine" in found.text
    assert alone.numbers[-2:] == (7, 8)


def test_a_turn_that_searched_counts_a_third() -> None:
    """A newer turn with the same words that only asked for them does not push the answer out."""
    said = "The safe opens with 4711."
    texts = [said, *["Rain."] * 3, *[said] * 12]
    wide = [text for one in texts for text in (one, "Rain.", "Rain.")]
    asked = tuple(at for at, text in enumerate(wide) if text == said and at)

    assert 1 in page_of(_passages(*wide, asked=asked), "safe opens", max_tokens=200).numbers
    assert 1 not in page_of(_passages(*wide), "safe opens", max_tokens=200).numbers


SAME_IDENTIFIER = [
    ("+49 170 123 45 67", "0170-1234567"),
    ("0170 1234567", "+49 (170) 123-4567"),
    ("00491701234567", "+49 170 1234567"),
    ("xkq7r-ab12", "XKQ7RAB12"),
    ("XKQ7R AB12", "xkq7r/ab12"),
    ("0193f2a4-7c1e-7000-8000-00a1b2c3d4e5", "0193F2A47C1E7000800000A1B2C3D4E5"),
    ("ada.byron@example.org", "<ADA.BYRON@EXAMPLE.ORG>"),
    ("12,345.50", "12345.50"),
    ("2026-11-26", "2026/11/26"),
    ("4711", "Nr4711b"),
    ("٤٧١١", "4711"),
    ("order4711", "ORDER 4711"),
]


@pytest.mark.parametrize(("query", "text"), SAME_IDENTIFIER)
def test_an_identifier_is_found_in_another_form(query: str, text: str) -> None:
    """Other signs between its parts, other case, with and without the code of a country."""
    others = [
        "+49 171 999 88 77",
        "XKQ7RZZ99",
        "0193f2a4-7c1e-7000-8000-00ffffffffff",
        "ada.king@example.org",
    ]
    others += ["99,345.51", "2026-12-27", "order 5822", "ab 12"]

    assert _best(query, *others * 3, text, *others * 3)[0] == 3 * len(others)
    assert _best(query, *others, f"{'rain and snow ' * 99}{text} {'rain and snow ' * 99}", *others)[0] == len(
        others
    )


def _odd_words(r: random.Random) -> list[str]:
    """Words, numbers and codes in several scripts, many with the same first letters."""
    begins = ["alexan", "алексан", "αλεξαν", "عبدالر", "xkq7r", "4917", "ord", "राजकु"]
    ends = ["".join(r.choices("abвг01234567890123456789", k=r.randint(0, 9))) for _ in range(1_200)]
    return [r.choice(begins) + end for end in ends]


@pytest.mark.parametrize("seed", range(6))
def test_a_rare_word_or_number_finds_its_turn_on_the_first_page(seed: int) -> None:
    """By itself and in a sentence of common words, however long its turn is, however alike the others."""
    r = random.Random(seed)
    words, common = _odd_words(r), ["what", "number", "about", "belongs", "please"]
    turns = [
        " ".join(r.choices(common, k=r.choice([2, 20, 300])) + r.choices(words, k=r.choice([1, 5, 60])))
        for _ in range(80)
    ]
    turns = [" ".join(r.sample(turn.split(), len(turn.split()))) for turn in turns]
    passages = _passages(*turns)
    rare = [word for word in words if sum(f" {word} " in f" {turn} " for turn in turns) == 1]
    runs = [
        run for run in re.findall("[0-9]{3,}", " ".join(turns)) if sum(run in turn for turn in turns) == 1
    ]
    assert len(rare) > 10
    assert len(runs) > 10

    for asked in r.sample(rare, 5) + r.sample(runs, 5):
        texts = [turn.split() if asked in rare else turn for turn in turns]
        at = next(at for at, text in enumerate(texts) if asked in text)
        for query in (asked, f"what number {asked} belongs to please", asked.upper()):
            for size in (300, 1_000):
                found = page_of(passages, query, max_tokens=size)
                at = next(
                    at for at, turn in enumerate(turns) if asked in (turn.split() if asked in rare else turn)
                )
                assert at + 1 in found.numbers, (query, size)
                assert asked in found.text


LETTERS = ("abcdefgh ", "абвгдежз ", "春夏秋冬花鳥風月", "กขคงจฉชซ", "0123456789 ", "{}[]<>:;,.!? a")


@pytest.mark.parametrize("seed", range(6))
def test_pages_are_within_their_bound_and_share_no_turn(seed: int) -> None:
    """Of any text in any script; the numbers stand in order; the same call gives the same page."""
    r = random.Random(seed)
    letters = r.choice(LETTERS)
    texts = ["".join(r.choices(letters, k=r.choice([5, 60, 900, 9_000]))) for _ in range(40)]
    passages, query, most = _passages(*texts), texts[3][:40], r.choice([100, 300, 600, 1_000])

    seen: set[int] = set()
    for page in range(1, 12):
        found = page_of(passages, query, page=page, max_tokens=most)
        assert text_tokens(found.text.encode()) <= most
        assert not seen & set(found.numbers)
        assert list(found.numbers) == sorted(found.numbers)
        assert found == page_of(passages, query, page=page, max_tokens=most)
        seen |= set(found.numbers)


def test_the_match_survives_in_a_long_turn_without_spaces() -> None:
    """Characters of Chinese take more tokens each, so less of the turn fits: the piece that matches does."""
    text = "天气很好我们去公园散步" * 300 + "密码是四七一一。" + "天气很好我们去公园散步" * 300

    found = page_of(_passages(text, "你好"), "密码", max_tokens=600)

    assert "密码是四七一一" in found.text
    assert text_tokens(found.text.encode()) <= 600


def test_a_number_of_a_page_that_is_out_of_reach_is_answered() -> None:
    """Zero and less are the first page; a very large one ends soon."""
    passages = _passages(*[f"door {number}" for number in range(50)])

    assert page_of(passages, "door", page=-3) == page_of(passages, "door", page=1)
    began = time.process_time()
    assert page_of(passages, "door", page=10**12).text.startswith("No further passage")
    assert time.process_time() - began < 5


@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
def test_turns_of_another_provider_api_are_read_too(wire: str) -> None:
    """An archive may have records from before the conversation changed its provider API."""
    with Chat(ScriptedBackend(*["Noted."] * 3, wire=wire), compactor=CUTS) as chat:
        blob = chat.run_turns(None, ["The key is under the mat.", "So.", "So."]).state
    state = load_state(blob)
    other = "anthropic" if wire == "openai" else "openai"
    moved = replace(state, meta=msgspec.structs.replace(state.meta, wire=other))

    found = passages_of(moved, dialect_of(other), codec=Plain(), dialect_of=dialect_of)

    assert found[0].text == "user: The key is under the mat.\nassistant: Noted."
    assert passages_of(moved, dialect_of(other), codec=Plain()) == []


@pytest.mark.parametrize("wire", ["openai", "openai-responses", "anthropic"])
def test_an_identifier_is_found_wherever_it_was_said(wire: str) -> None:
    """In a message, an event, a reply, the arguments of a call and its result, of each provider API."""
    codes = [f"XKQ7R{end}" for end in ("AAAA", "BBBB", "CCCC", "DDDD", "EEEE", "FFFF")]

    def book(note: str, code: str) -> str:
        """Book."""
        return f"{note[:9]} {codes[4]}"

    call = Calls([("book", {"note": "rain " * 150, "code": codes[3]})])
    script = ScriptedBackend("Noted.", f"It is {codes[2]}.", call, *["Noted."] * 9, wire=wire)
    with Chat(script, compactor=CUTS, tools=[book]) as chat:
        blob = chat.append_to_state(None, event(f"Booked: {codes[1]}"))
        texts = [f"My code is {codes[0]}.", "And?", "Book.", f"So {codes[5]}.", "Bye.", "Bye."]
        state = load_state(chat.run_turns(blob, texts).state)
    passages = passages_of(state, script.dialect, codec=Plain())

    for code, number in zip(codes, (1, 1, 2, 3, 3, 4), strict=True):
        found = page_of(passages, f"the code {code.lower()}", max_tokens=300)
        assert number in found.numbers
        assert code in found.text


def test_a_damaged_part_is_left_out() -> None:
    """The rest of the archive is searched; the turn is not stopped by it."""
    with Chat(ScriptedBackend(*["Noted."] * 3), compactor=CUTS) as chat:
        blob = chat.run_turns(None, ["The key is under the mat.", "So.", "So."]).state
    state = load_state(blob)
    good = state.parts[0]
    bad = replace(good, stored=b"x" * len(good.stored), _raw=None)

    found = passages_of(replace(state, parts=(bad, good)), dialect_of("openai"), codec=Plain())

    assert [passage.number for passage in found] == [1, 2]


def test_only_the_newest_part_of_a_huge_archive_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound on what one call opens."""

    with Chat(ScriptedBackend(*["Noted."] * 3), compactor=CUTS) as chat:
        blob = chat.run_turns(None, ["The key is under the mat.", "So.", "So."]).state
    state = load_state(blob)
    twice = replace(state, parts=(*state.parts, *state.parts))

    monkeypatch.setattr(recall_archive, "MOST_BYTES", state.parts[0].raw_len)

    assert recall_archive.searched_parts(twice) == twice.parts[1:]
    assert recall_archive.HITS == 5
