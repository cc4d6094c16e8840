"""Facts about real traffic on Anthropic's Messages; most of what they say is in `_facts`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from ._drive import Colour
from ._facts import RecordedTraffic
from ._recorded import Record
from ._replays import Measured, Replays, replay_all, sent_back
from ._wire import Wire
from ._wire_anthropic import ANTHROPIC

_EXPIRES = re.compile(rb'("expires_at": ?")2026')


class TestRecordedAnthropic(RecordedTraffic):
    """230 recordings of Anthropic.

    Not driven: one count of tokens, and one message of nothing (e30eb01c9ecc9e5c), which the package refuses
    where the server did. Three links are none: in ad2451052f6e9364 the client edited what came before, in
    feefa0c107b048b1 (0 to 3) and aa84aea6e6c9e16d the answer is another one's of the same words.
    """

    wire = ANTHROPIC
    plain_links = 317
    links = 352
    exchanges = 526
    floors: ClassVar = {
        "exact": 1.0,
        "same-calls": 0.99,
        "same-calls+signatures": 0.99,
        "text+signatures": 0.99,
        "text": 0.99,
    }

    def test_every_kind_of_block_was_sent_back(self, replays: Replays, measured: list[Measured]) -> None:
        """Thinking, redacted or not, hosted tools and their results, and summaries are among the verbatim."""
        kinds = {
            (block["type"], "streamed" if source.was_streamed else "whole")
            for source in sent_back(replays, measured)
            for message in source.answer or ()
            for block in message["content"]
        }

        assert kinds >= {
            ("thinking", "whole"),
            ("thinking", "streamed"),
            ("redacted_thinking", "whole"),
            ("tool_use", "whole"),
            ("tool_use", "streamed"),
            ("server_tool_use", "whole"),
            ("server_tool_use", "streamed"),
            ("web_search_tool_result", "whole"),
            ("web_search_tool_result", "streamed"),
            ("web_fetch_tool_result", "whole"),
            ("bash_code_execution_tool_result", "whole"),
            ("tool_search_tool_result", "whole"),
            ("advisor_tool_result", "whole"),
            ("mcp_tool_use", "whole"),
            ("mcp_tool_result", "whole"),
            ("compaction", "whole"),
        }

    def test_a_paused_answer_is_sent_back_by_the_same_call(self, replays: Replays) -> None:
        """One call of the chat asks twice: the second time with the paused answer last, and no other word."""
        paused = [
            one for one in replays.all if any(self.wire.is_paused(each) for each in one.thread.exchanges)
        ]

        assert [one.thread.record.id for one in paused] == ["028a20e7898175b4", "89fa800b0b3a02fd"]
        for one in paused:
            assert one.driven is not None
            assert one.driven.result is not None
            assert len(one.driven.states) == 1
            (before, first), (_, second) = one.sent
            sent, again = json.loads(first), json.loads(second)
            assert again["messages"] == [*sent["messages"], *(before.answer or ())]
            assert {key: again[key] for key in ("system", "tools", "thinking") if key in again} == {
                key: sent[key] for key in ("system", "tools", "thinking") if key in sent
            }

    def test_a_container_goes_along_while_it_is_good(
        self, replays: Replays, read_wire: Callable[[Wire], list[Record]], colour: Colour
    ) -> None:
        """The container that a server's tools ran in is named by the next request, as clients had to."""
        wanted = {
            exchange.body["container"]: (record, exchange.at)
            for record in read_wire(self.wire)
            for exchange in record.exchanges
            if exchange.body.get("container")
        }
        in_time = replay_all(self.wire, colour, [not_expired(record) for record, _ in wanted.values()])

        named = {
            json.loads(body)["container"]: (one.thread.record.id, exchange.at)
            for one in in_time.all
            for exchange, body in one.sent
            if "container" in json.loads(body)
        }
        late = [body for one in replays.all for _, body in one.sent if b'"container":' in body]

        assert len(wanted) == 6
        assert named == {name: (record.id, at) for name, (record, at) in wanted.items()}
        assert [body for body in late if "container" in json.loads(body)] == []


def not_expired(record: Record) -> Record:
    """The record with containers that end a century later; nothing else of an answer is touched."""
    return replace(
        record,
        exchanges=tuple(
            replace(exchange, raw_body=_EXPIRES.sub(rb"\g<1>2126", exchange.raw_body))
            for exchange in record.exchanges
        ),
    )
