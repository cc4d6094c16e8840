"""Calls that wait inside of a call come out of the journal's text as they went in."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from goaitools_py.types.answers import PendingCall, PendingReason, pending_inside, pending_text
from goaitools_py.types.messages import CallKind


@pytest.mark.parametrize("kind", get_args(CallKind))
@pytest.mark.parametrize("reason", get_args(PendingReason))
def test_reason_and_kind_come_out_as_they_went_in(reason: PendingReason, kind: CallKind) -> None:
    """The id begins with that of the outer call, so that an answer finds its way."""
    call = PendingCall(id="in-1", name="pay", arguments='{"sum": 1}', reason=reason, kind=kind)

    (found,) = pending_inside("out-1", pending_text([call]))

    assert (found.id, found.name, found.arguments) == ("out-1/in-1", "pay", '{"sum": 1}')
    assert (found.reason, found.kind) == (reason, kind)


def test_words_of_a_later_release_become_the_cautious_ones() -> None:
    """A reason that is not known asks a person; a kind that is not known is a function."""
    (found,) = pending_inside("out-1", json.dumps([["in-1", "pay", "{}", "vote", "ritual"]]))

    assert (found.reason, found.kind) == ("approval", "function")


@pytest.mark.parametrize("text", ["", "no JSON", "{}", "[1]", '[["in-1"]]', "null"])
def test_any_other_text_holds_no_calls(text: str) -> None:
    """An outer call of a usual tool has a text of its own."""
    assert pending_inside("out-1", text) == ()
