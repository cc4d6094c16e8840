# generated from chat/async_chat.py by tests/make_sync.py; edit chat/async_chat.py
"""The chat in plain code.

Owns: the methods of `Chat`. Must never know: the inside of a turn, or an event loop. Bodies that both chats
need stand in `facade`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

from ..backends.base import Backend, warm_up
from ..backends.by_name import backend_from_name
from ..base.advice import own_names
from ..tools import Tool, ToolContext, refuse_without_deps
from ..turn.edges.driver import Driver
from ..turn.flow import Flow
from ..turn.observers import notify
from ..turn.plan import Plan, Watch
from ..types.answers import Answers
from ..types.errors import TurnError
from ..types.options import ChatOptions, refuse_misplaced
from ..types.result import ChatResult, CompactionReport
from .facade import Facade, State
from .handles import RunningTurn, Step, failed_step, step_of
from .signatures import keywords_written_out
from .sync_turn import Turn

if TYPE_CHECKING:
    from ..output import Output
    from ..stores.base import Store
    from .conversation import Conversation
    from .fields import (
        ChatFields,
        CompactFields,
        DefaultFields,
        NoFields,
        RunTurnsFields,
        SeriesFields,
        TurnFields,
    )
    from .kept.facade import Gate, PartsPlace, Save

__all__ = ["Chat"]

T = TypeVar("T")


@keywords_written_out
@own_names
class Chat(Facade[Backend]):
    """A stateful chat in plain code. It holds configuration only, so one instance serves every thread.

    Args:
        backend: A `Backend`, or a name such as "openai:MODEL" or "sim".
        defaults: Options that hold for every call. Each is also a keyword.
        codec: How blobs are protected; `PLAIN` means "I trust my storage".
        fallbacks: Backends, or names such as "anthropic:MODEL". A turn continues with them, in order, if the
            provider is down; see docs/convert.md.
        fallback_rest: Seconds for which turns skip a provider that could not be reached, if there is a
            fallback. 0: each turn asks it first.
        max_concurrent_calls: The most requests at a time, for each backend that is given by name. All chats
            of this process with the same server, key and model wait in one queue. See docs/providers.md.
        http: For chats on an event loop only.
        log_content: True: the logger ``goaitools_py.content`` gets the texts of the conversation. A function
            from text to text redacts each of them first. See docs/logging.md.
        telemetry: `goaitools_py.telemetry.Telemetry`, for spans and metrics. See docs/telemetry.md.
    """

    _is_async = False

    def _named(self, name: str) -> Backend:
        return backend_from_name(name, is_async=False, **self._of_named)

    @overload
    def chat(
        self,
        options: ChatOptions | None = None,
        /,
        *,
        output_type: type[T] | Output[T],
        **fields: Unpack[TurnFields],
    ) -> ChatResult[T]: ...
    @overload
    def chat(self, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]) -> ChatResult: ...
    def chat(self, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]) -> ChatResult[Any]:
        """One stateless exchange: `chat_with_state` without a state.

        Args:
            options: `ChatOptions`; every field is also a keyword.

        Returns:
            A `ChatResult`. Its `state` may go on as a conversation.

        Raises:
            TurnError: The turn began and could not end. Its `state` and `pending_input` have all so far.
            TypeError: An option is of a wrong type, or in the wrong place.
            ValueError: There is no message.
        """
        return self.chat_with_state(None, options, **fields)

    @overload
    def chat_with_state(
        self,
        state: State,
        options: ChatOptions | None = None,
        /,
        *,
        output_type: type[T] | Output[T],
        **fields: Unpack[TurnFields],
    ) -> ChatResult[T]: ...
    @overload
    def chat_with_state(
        self, state: State, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> ChatResult: ...
    def chat_with_state(
        self, state: State, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> ChatResult[Any]:
        """Run one turn: ask the model, run its tools, compact if asked, return the reply and the new blob.

        Without a new message it answers the appended messages that the model has not seen.

        Args:
            state: The blob of the last turn; None or empty starts a conversation. It is never changed.
            options: `ChatOptions`; every field is also a keyword.

        Returns:
            A `ChatResult`, which unpacks as ``text, state``.

        Raises:
            TurnError: The turn began and could not end. Its `state` and `pending_input` have everything so
                far.
            StateError: The state cannot be used, and `on_bad_state` or `on_foreign_state` says to raise.
            ToolPendingError: The state waits for answers, and `on_pending` is "raise".
            TurnConflictError: The `turn_id` was used for other messages.
            TypeError: An option is of a wrong type or in the wrong place, or a tool needs `deps` and the turn
                has no `deps`.
            ValueError: There is nothing new to answer.
        """
        return self._turn(state, options, fields).result()

    @overload
    def start(
        self,
        state: State,
        options: ChatOptions | None = None,
        /,
        *,
        output_type: type[T] | Output[T],
        **fields: Unpack[TurnFields],
    ) -> Turn[T]: ...
    @overload
    def start(
        self, state: State, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> Turn[Any]: ...
    def start(
        self, state: State, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> Turn[Any]:
        """Make the turn that `chat_with_state` runs, as a handle: it runs as it is iterated, and streams.

        Args:
            state: As for `chat_with_state`.
            options: As for `chat_with_state`.

        Returns:
            A `Turn`, for ``with`` and ``for``. Its `state` is a resumable blob at every instant.
        """
        return self._turn(state, options, fields, stream=True)

    @overload
    def resume(
        self,
        state: State,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        *,
        output_type: type[T] | Output[T],
        **fields: Unpack[TurnFields],
    ) -> ChatResult[T]: ...
    @overload
    def resume(
        self,
        state: State,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> ChatResult: ...
    def resume(
        self,
        state: State,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> ChatResult[Any]:
        """Finish a turn that failed, stopped at a checkpoint, or waits. Results of finished tools are kept.

        A call that had started and has no result is in doubt: its process may have ended before or after its
        effect. An idempotent tool runs again. For any other tool the model is told that the outcome is
        unknown, unless `answers` says more.

        The first answer to a call holds; later answers are ignored. So a button press may be delivered twice.
        If all answers are ignored, the stored reply is returned, with `duplicate`.

        Args:
            state: An error's or a result's blob, or a checkpoint.
            answers: By call id, see `pending_calls`: ``Approve()``, ``Approve({"amount": 5})``,
                ``Approve(again=True)``, ``Deny("why")`` or ``ToolReturn(value)``. Calls without an answer
                wait on.
            options: As for a turn. The tools that are to run must be among `tools`.

        Returns:
            A `ChatResult`.

        Raises:
            TurnError: The turn could not end; its `state` holds everything so far.
            StateError: The state cannot be read, or is of another provider API. It is never replaced.
            NothingToResumeError: Nothing is unfinished, and nothing waits. It is a ValueError.
            ValueError: An answer is for a call that is not known.
            TypeError: An answer is not `Approve`, `Deny` or `ToolReturn`, or a tool needs `deps`.
        """
        return self._turn(state, options, fields, resume=True, answers=answers).result()

    @overload
    def start_resume(
        self,
        state: State,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        *,
        output_type: type[T] | Output[T],
        **fields: Unpack[TurnFields],
    ) -> Turn[T]: ...
    @overload
    def start_resume(
        self,
        state: State,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> Turn[Any]: ...
    def start_resume(
        self,
        state: State,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> Turn[Any]:
        """Make the turn that `resume` finishes, as a handle: it runs as it is iterated, and streams.

        Args:
            state: As for `resume`.
            answers: As for `resume`.
            options: As for `resume`.

        Returns:
            A `Turn`, for ``with`` and ``for``.
        """
        return self._turn(state, options, fields, resume=True, answers=answers, stream=True)

    def step(
        self,
        state: State,
        answers: Answers | None = None,
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[ChatFields],
    ) -> Step:
        """Make one step of a turn: one model call, or one round of tools.

        A new message begins a turn. Without a new message, the step continues the unfinished turn of the
        state. Save the state of each step: another process may make the next one, hours later.

        Args:
            state: As for `chat_with_state`.
            answers: To waiting calls, as for `resume`.
            options: As for a turn, and the same at each step.

        Returns:
            A `Step` with the new state and its status. A turn's error is a step with the status "failed".

        Raises:
            StateError: As for `chat_with_state`.
            ValueError: The turn is complete, and there is nothing new to answer.
        """
        from ..turn.fallback import engine_of

        plan = self._step_plan(state, answers, options, fields)
        refuse_without_deps(plan.tools, plan.options.deps)
        engine = engine_of(plan)
        try:
            result = self._open(engine, plan, lambda drive: drive(engine.run())).result()
        except TurnError as exc:
            return failed_step(exc)
        return step_of(result, engine.has_calls if result.status == "in_progress" else False)

    @overload
    def run_turns(
        self,
        state: State,
        texts: Sequence[str],
        options: ChatOptions | None = None,
        /,
        *,
        output_type: type[T] | Output[T],
        **fields: Unpack[SeriesFields],
    ) -> ChatResult[T]: ...
    @overload
    def run_turns(
        self,
        state: State,
        texts: Sequence[str],
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[RunTurnsFields],
    ) -> ChatResult: ...
    def run_turns(
        self,
        state: State,
        texts: Sequence[str],
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[RunTurnsFields],
    ) -> ChatResult[Any]:
        """Say several texts one after another, one turn each. The result is the last turn's.

        A turn that waits for answers ends the series, unless `on_pending` says how a new message is handled.
        The result is the result of that turn, and its `turns_left` has the texts that were not sent. A reply
        that is truncated, refused or limited does not end the series.

        Args:
            state: As for `chat_with_state`.
            texts: The messages of the user, at least one text.
            options: As for `chat_with_state`, but not `user`.

        Returns:
            A `ChatResult`.

        Raises:
            TypeError: Before the first turn: one of the texts cannot be a message.
            ValueError: Before the first turn: there are no texts, or several and one `turn_id`.
            BaseException: The exception of a turn; Ctrl-C and a cancellation too. It has two more attributes.
                `state` is the conversation with the progress of the broken turn. `turns_left` has the texts
                that are neither in `state` nor in `pending_input`.
        """
        series = self._series(state, texts, options, fields)
        try:
            while True:
                turn = self._turn(series.state, options, {**fields, "user": series.text})
                series.begin(turn)
                if (result := series.end(turn.result())) is not None:
                    return result
        except BaseException as exc:
            series.tell(exc)
            raise

    @overload
    def extract(
        self,
        text: str,
        output_type: type[T] | Output[T],
        options: ChatOptions | None = None,
        /,
        **fields: Unpack[TurnFields],
    ) -> T: ...
    @overload
    def extract(
        self, text: str, output_type: Any, options: ChatOptions | None = None, /, **fields: Unpack[TurnFields]
    ) -> Any: ...
    def extract(
        self, text: str, output_type: Any, options: ChatOptions | None = None, /, **fields: Unpack[TurnFields]
    ) -> Any:
        """Read a value out of a text, in one stateless exchange.

        Args:
            text: The text. The model is told that it is no request, unless the chat or the call has a
                `system`.
            output_type: The type of the value, as for a turn.
            options: As for `chat`, but not `user`.

        Returns:
            The value.

        Raises:
            OutputError: The answers do not fit the type, or the reply was refused or cut off.
            TurnError: The model could not be asked.
        """
        result = self.chat(options, **self._extraction(text, output_type, options, fields))
        return self._extracted(result)

    def compact_state(
        self,
        state: State,
        compactor: Any = None,
        /,
        *,
        dry_run: bool = False,
        **fields: Unpack[CompactFields],
    ) -> CompactionReport:
        """Compact now, outside a turn, without asking the trigger. The report's `state` is the new blob.

        Args:
            state: The conversation's blob.
            compactor: Makes the cut; None takes the chat's compactor.
            dry_run: Only report the cut: `state` is the given state, and nothing is archived.
            fields: Options of the conversation's turns that the chat does not have by default. A strategy
                that asks the model sends the same `system`, `tools` and `settings`, because the provider has
                cached and signed that prefix. And `binding`, `timeout`, `min_revision`.

        Returns:
            A `CompactionReport`.

        Raises:
            CompactionError: The compactor failed; the given state is as it was.
            StateError: The state cannot be read.
            ValueError: There is no compactor.
        """
        from ..turn.edges.sync_edge import refuse_async_callback

        on_event = self._observer(fields)
        refuse_async_callback("on_event", on_event)
        steps: Driver[CompactionReport] = self._drive_watched(
            self._compaction(state, compactor, dry_run, fields)
        )
        while (told := steps.step()) is not None:
            notify(on_event, told)
        assert steps.result is not None
        return steps.result

    def count_tokens(
        self, state: State, options: ChatOptions | None = None, /, **fields: Unpack[ChatFields]
    ) -> int:
        """Ask the provider how many input tokens the next request has. No model answers, nothing changes.

        For an estimate without a request see `inspect_state` and `estimate_tokens`.

        Args:
            state: The conversation's blob; None or empty for a new one.
            options: As for a turn: ``user=…``, ``system=…``, ``tools=…``.

        Returns:
            The number of tokens.

        Raises:
            ValueError: The provider API has no endpoint that counts (Chat Completions), or there is nothing
                to count.
            TurnError: The provider did not answer.
            StateError: The state cannot be read.
        """
        from ..turn.outside_turns import count_flow

        steps = self._drive(count_flow(self._plan(state, options, fields)))
        while steps.step() is not None:
            pass
        assert steps.result is not None
        return steps.result

    def as_tool(
        self,
        name: str,
        description: str,
        *,
        store: Store,
        key: Callable[[ToolContext[Any]], str] | None = None,
        **fields: Unpack[DefaultFields],
    ) -> Tool[..., Any]:
        """Make this chat a tool of another one, with a conversation of its own that is kept in a store.

        The other model says something to this one, and reads its reply. Calls of this chat that wait for an
        approval become pending calls of the other chat's turn. Tokens and cost of this chat count in the
        usage and cost of that turn. See docs/hand_offs.md.

        Args:
            name: The tool's name.
            description: Tells the other model when to call it, and for which tasks.
            store: Where the conversation is kept; see `goaitools_py.stores`.
            key: Its key there, from the call's context. None: the other conversation's id, a slash, and the
                tool's name.
            fields: Options of the turns of this chat. Without `deps` here, the tools get the `deps` of the
                other chat's turn. `timeout` limits the whole call, too; without it, the other chat's
                `Timeouts.tool` does.

        Returns:
            A `Tool`. It is idempotent: after a crash the same call gets the stored reply.
        """
        from .hand_off import hand_off

        self._check_for_a_tool(fields)
        return hand_off(name, description, partial(self.conversation, store), key, fields)

    def conversation(
        self,
        store: Store,
        key: str,
        *,
        save: Save = "turn",
        gate: Gate = "queue",
        concurrent_turns: bool = False,
        binding: Any = None,
        lease_ttl: float = 10.0,
        save_timeout: float = 5.0,
        plain_title: bool | None = None,
        parts: PartsPlace = "inline",
        stop_every: float | None = None,
        keep_branches: bool = False,
        auto_title: bool = False,
        **misplaced: Unpack[NoFields],
    ) -> Conversation:
        """A conversation that is kept in a store. Nothing is loaded yet, and making one costs nothing.

        Args:
            store: See `goaitools_py.stores`.
            key: The conversation's key there, such as a user's id; it becomes its `conversation_id`.
            save: "turn" saves at the end of each turn, however it ends, and before the first tool of a reply
                that is not `idempotent`. "checkpoint" also saves the new messages before the first request,
                each reply, and before and after each tool: a process that is killed loses nothing.
            gate: The rule for a turn while another turn runs on this key, if the store has leases. "queue"
                waits up to the turn's `timeout`, then raises `TurnInProgressError`; "reject" raises at once.
                "steer" gives the message to the running turn: its next model call reads it, and messages of
                `append`. The store must have leases. Give all handles of a conversation the same gate.
            concurrent_turns: The rule for a turn if another turn was saved meanwhile. True puts this turn
                behind the other, although its model did not know it; False raises `StateConflictError`.
            binding: For sealed codecs: the owner of the conversation; None takes the chat's default.
            lease_ttl: Seconds until the lease of a process that died is free again. It is renewed while a
                turn runs.
            save_timeout: Seconds for which the save of a paid turn, and the release of its lease, are tried
                again while the store is unavailable.
            plain_title: True: the title is also in a plain column beside the blob. Lists can show it, and
                every reader of the database can see it. None: only without a keyed codec.
            parts: "store" keeps history, archive and media beside the blob, in a table of parts: a save then
                writes only the new parts. The store must be `stores.Parted`. "inline": in the blob.
            stop_every: Seconds between two looks of a turn at the stop flag, which `Conversation.stop` sets.
                The store must be `stores.Stopping`. None: a turn ends only where it runs.
            keep_branches: True: a turn with `edit` first copies the conversation, as it was, to the key
                ``<key>.branch.<revision>``; the warning `branch_kept` has the end of that key.
            auto_title: True: the first message of a conversation without a title becomes its title.

        Returns:
            A `Conversation`.

        Raises:
            TypeError: The store or the key is not one, or an option belongs elsewhere.
            ValueError: A setting has a value that it cannot have.
        """
        refuse_misplaced("conversation", misplaced)
        from .conversation import Conversation

        made = self._thread(
            store,
            key,
            save=save,
            gate=gate,
            concurrent_turns=concurrent_turns,
            binding=binding,
            lease_ttl=lease_ttl,
            save_timeout=save_timeout,
            plain_title=plain_title,
            parts=parts,
            stop_every=stop_every,
            keep_branches=keep_branches,
            auto_title=auto_title,
        )
        return Conversation(*made)

    def warm_up(self) -> None:
        """Import the provider's SDK and make its client now, rather than in the first turn. Nothing is sent.

        Raises:
            BackendError: There are no credentials.
        """
        from ..turn import fallback  # noqa: F401

        warm_up(self._backend)

    def close(self) -> None:
        """Close the connections of its backends. A `client` or `http_client` of yours stays open. A later
        call opens new connections."""
        for backend in self._backends:
            backend.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _turn(
        self,
        state: State,
        options: ChatOptions | None,
        fields: Mapping[str, Any],
        *,
        stream: bool = False,
        resume: bool = False,
        answers: Answers | None = None,
    ) -> Turn[Any]:
        from ..turn.fallback import engine_of

        plan = self._plan(state, options, fields, stream=stream, resume=resume, answers=answers)
        refuse_without_deps(plan.tools, plan.options.deps)
        engine = engine_of(plan)
        return self._open(engine, plan, lambda drive: drive(engine.run()))

    def _open(self, work: RunningTurn, plan: Plan, steps: Callable[[Any], Any]) -> Turn[Any]:
        """Make the handle of a turn, from its work and its driver."""
        options = plan.options
        if options.on_checkpoint is not None:
            from ..turn.edges.sync_edge import refuse_async_callback

            refuse_async_callback("on_checkpoint", options.on_checkpoint)
        drive = partial(self._drive, threads=options.tool_threads, watch=plan.watch)
        return Turn(work, steps(drive), options.on_event)

    def _drive(self, flow: Flow[T], *, threads: bool = False, watch: Watch | None = None) -> Driver[T]:
        from ..turn.edges.sync_edge import BlockingEdge, warn_in_a_running_loop

        warn_in_a_running_loop()
        flow = flow if watch is None else watch(flow)
        return Driver(flow, BlockingEdge(self._backend, named=self._named_beside, threads=threads))
