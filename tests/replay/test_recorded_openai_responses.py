"""Facts about real traffic on OpenAI's Responses; most of what they say is in `_facts`."""

from __future__ import annotations

import json
from typing import ClassVar

from ._facts import RecordedTraffic
from ._replays import Measured, Replay, Replays, sent_back
from ._wire_responses import RESPONSES


class TestRecordedOpenAIResponses(RecordedTraffic):
    """174 recordings of OpenAI, Bedrock and DeepSeek.

    Not driven: 21 exchanges that build on what the server keeps (`previous_response_id`, conversations,
    background responses) or that are no model calls (`/responses/compact`), and the links of these.
    """

    wire = RESPONSES
    plain_links = 238
    links = 252
    exchanges = 451
    floors: ClassVar = {"exact": 1.0, "all-items": 0.98}
    unpublished: ClassVar = {
        "314855717ba4cc35": "a web search whose source is of the kind 'api', as the provider sent it",
        "97730d401315e311": "sent again without reasoning: the message after it has no id any more",
    }
    of_dialect: ClassVar = {
        "4c75b90f7fa6e537": "its client dropped instructions and tools, so reasoning may not be sent back",
    }

    def test_every_kind_of_item_was_sent_back(self, replays: Replays, measured: list[Measured]) -> None:
        """Reasoning, calls, hosted tools and their results, and summaries are among the verbatim."""
        kinds = {
            (item["type"], "streamed" if source.was_streamed else "whole")
            for source in sent_back(replays, measured)
            for item in source.answer or ()
        }

        assert kinds >= {
            ("message", "whole"),
            ("message", "streamed"),
            ("reasoning", "whole"),
            ("reasoning", "streamed"),
            ("function_call", "whole"),
            ("function_call", "streamed"),
            ("web_search_call", "whole"),
            ("web_search_call", "streamed"),
            ("file_search_call", "whole"),
            ("code_interpreter_call", "whole"),
            ("image_generation_call", "whole"),
            ("mcp_list_tools", "whole"),
            ("mcp_call", "whole"),
            ("tool_search_call", "whole"),
            ("tool_search_call", "streamed"),
            ("tool_search_output", "whole"),
            ("tool_search_output", "streamed"),
            ("compaction", "whole"),
            ("compaction", "streamed"),
        }

    def test_encrypted_reasoning_was_sent_back(self, replays: Replays, measured: list[Measured]) -> None:
        """What only the provider can read is among the verbatim, whole and streamed."""
        secrets = [
            source.was_streamed
            for source in sent_back(replays, measured)
            for item in source.answer or ()
            if item["type"] == "reasoning" and item.get("encrypted_content")
        ]
        print(f"\n{len(secrets)} encrypted reasoning items, {sum(secrets)} of them streamed")

        assert set(secrets) == {False, True}

    def test_no_request_builds_on_what_the_server_keeps(self, replays: Replays) -> None:
        """Every request asks for nothing to be stored, and for reasoning that can be sent back."""
        bodies = [json.loads(body) for one in replays.all for _, body in one.requests]

        assert {body["store"] for body in bodies} == {False}
        assert all("reasoning.encrypted_content" in body["include"] for body in bodies)
        assert not {"previous_response_id", "conversation"} & {key for body in bodies for key in body}

    def test_a_tool_search_that_nobody_answered_found_nothing(self, replays: Replays) -> None:
        """The client has to run it: the call is closed with an empty answer, what the user says follows."""
        for id in ("6a72a8e66a04f2b1", "f81dff80c50f5143"):
            _, (_, body), *_ = self.only(replays, id).sent

            kinds = [item.get("type") or item.get("role") for item in json.loads(body)["input"]]
            assert kinds.count("user") == 2
            searched = kinds.index("tool_search_call")
            assert kinds[searched + 1] == "tool_search_output"

    def test_reasoning_over_dropped_instructions_is_not_sent_back(self, replays: Replays) -> None:
        """It counts for what stood before it; the text that followed stays, without the id that ties it."""
        (earlier, _), (_, body) = self.only(replays, "4c75b90f7fa6e537").sent[-2:]
        (text,) = [item for item in earlier.answer or () if item["type"] == "message"]

        items = json.loads(body)["input"]
        assert [item for item in items if item.get("type") == "reasoning"] == []
        assert items[-2] == {key: value for key, value in text.items() if key != "id"}

    def only(self, replays: Replays, id: str) -> Replay:
        """The one thread of a record."""
        (found,) = [one for one in replays.all if one.thread.record.id == id]
        return found
