"""Imports point one way, importing costs little, and nothing in the package can run what it reads."""

from __future__ import annotations

import ast
import functools
import graphlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import goaitools_py

PACKAGE = Path(goaitools_py.__file__).parent
MODULES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}

ALLOWED = {
    # words and bytes
    "values": "",
    "calling": "",
    "process": "",
    "extras": "",
    "version": "",
    "addresses": "",
    "again": "",
    "exits": "",
    "undisturbed": "",
    "escaping": "",
    "usage": "values",
    "errors": "usage",
    "json_scan": "",
    "rawjson": "json_scan",
    "messages": "calling escaping json_scan usage values",
    "render": "escaping messages values",
    "turn_warnings": "values",
    "citations": "render values",
    "context_edits": "values",
    "option_checks": "",
    "problems": "",
    "output": "errors events output.spec",
    "output.spec": "values",
    "output.strict": "",
    "output.limits": "output.strict",
    "output.refused": "output.limits output.strict",
    "output.misfit": "",
    "output.shape": "output.misfit output.strict problems values",
    "output.words": "",
    "output.by_tool": "errors output.misfit output.shape output.spec output.words tools",
    "output.wanted": (
        "backends.base output.by_tool output.misfit output.refused output.shape output.spec output.words "
        "render state.records tools values"
    ),
    "history.open.attempts": (
        "backends.base history.meter history.open.inbox history.open.turn_ids messages reading "
        "state.letters state.records state.state values"
    ),
    "turn.answer": "errors events output.misfit turn.flow",
    "options": "context_edits messages option_checks places values",
    "fields": "messages options prices tokens",
    "prices": "messages values",
    "showing": "messages values",
    "result": "citations messages prices showing turn_warnings values",
    "events": "errors messages result values",
    "observers": "",
    # the state, and its bytes
    "state": "",
    "state.dictionary": "errors",
    "state.frames": "errors state.dictionary values",
    "state.codec": "errors state.dictionary state.frames values",
    "state.formats": "state.codec state.parts",
    "state.varints": "state.frames",
    "state.parts": "errors state.codec state.frames state.varints values",
    "state.media": "errors state.codec state.parts values",
    "state.media_rows": "errors state.blob state.codec state.media state.parts state.records state.segments",
    "state.blob": (
        "errors state.codec state.formats state.frames state.media state.parts state.varints values"
    ),
    "state.outline": "errors state.blob state.codec state.formats state.frames state.parts",
    "state.placing": "errors state.blob state.codec state.frames state.parts state.state values",
    "seal": "seal.encrypted seal.keys seal.signed state.codec state.reseal",
    "seal.context": "state.codec",
    "seal.keys": "state.codec",
    "seal.signed": "seal.context seal.keys state.codec",
    "seal.encrypted": "seal.context seal.keys seal.signed state.codec state.frames",
    "state.text": "errors state.blob",
    "state.letters": "messages",
    "state.bounds": "",
    "state.row_json": "errors rawjson render",
    "state.row_ends": "rawjson state.bounds state.row_json",
    "state.closed_turns": "messages state.bounds state.letters state.row_ends values",
    "state.records": "messages state.bounds state.closed_turns state.letters state.row_ends values",
    "state.later": "errors messages rawjson state.closed_turns state.frames state.letters",
    "state.turn_rows": (
        "errors messages rawjson state.bounds state.closed_turns state.later state.letters state.records "
        "state.row_ends state.row_json values"
    ),
    "state.meta_segment": (
        "json_scan rawjson state.blob state.bounds state.later state.records state.row_json"
    ),
    "state.segments": (
        "errors json_scan rawjson state.blob state.closed_turns state.codec state.later state.media "
        "state.turn_rows values"
    ),
    "state.inbox_segment": (
        "errors state.blob state.bounds state.later state.letters state.records state.row_ends "
        "state.row_json state.segments"
    ),
    "state.open_segment": (
        "errors messages rawjson state.blob state.bounds state.closed_turns state.later state.letters "
        "state.media state.records state.row_ends state.row_json state.segments state.turn_rows"
    ),
    "state.state": (
        "errors state.blob state.closed_turns state.codec state.inbox_segment state.media state.media_rows "
        "state.meta_segment state.open_segment state.parts state.records state.segments state.turn_rows "
        "values"
    ),
    "state.stripped": "state.closed_turns state.parts state.records state.row_ends state.state values",
    "state.reseal": "state.blob state.codec state.formats state.parts state.state values",
    # pure rules that a turn and a history both use
    "backends.gate": "process",
    "backends.gating": "backends.base backends.gate process values",
    "backends.base": "citations context_edits messages values",
    "backends.rules": "rawjson",
    "backends.narrow": "backends.rules rawjson values",
    "backends.atoms": "rawjson",
    "backends.capabilities": "values",
    "compaction": "backends.capabilities context_edits messages result state.letters values",
    "tools": "backends.base errors messages prices problems render values",
    "reading": "backends.base errors messages rawjson render values",
    "media": "messages",
    "tokens": "media messages values vocabulary",
    "vocabulary": "media messages",
    # a state's history: a state in, a state out, no effect
    "history": "",
    "history.unseen_cut": "messages tokens values",
    "history.meter": (
        "backends.base backends.capabilities history.unseen_cut json_scan messages reading state.bounds "
        "state.records state.state tokens values"
    ),
    "history.open": "",
    "history.open.answers": "escaping messages tools values",
    "history.open.inner": "history.open.answers messages state.records state.state",
    "history.open.turn_ids": (
        "backends.base rawjson reading state.closed_turns state.codec state.records state.state values"
    ),
    "history.open.inbox": (
        "backends.base history.open.turn_ids messages reading render state.letters state.records "
        "state.state values"
    ),
    "history.open.journal": (
        "backends.base errors history.open.answers history.open.inner messages reading state.records "
        "state.state values"
    ),
    "history.open.failed": "state.bounds state.state values",
    "history.open.steps": (
        "backends.base citations errors history.meter history.open.attempts history.open.journal "
        "history.open.turn_ids history.unseen_cut messages reading state.bounds state.closed_turns "
        "state.letters state.records state.row_ends state.state tokens values"
    ),
    "history.open.room": (
        "backends.base errors history.open.steps history.open.turn_ids json_scan messages state.codec "
        "state.media_rows state.meta_segment state.parts state.records state.segments state.state values"
    ),
    "history.open.admission": (
        "backends.base errors history.open.journal history.open.room messages state.records state.state "
        "values"
    ),
    "history.open.answered": (
        "backends.base history.open.answers history.open.journal history.open.turn_ids messages reading "
        "state.closed_turns state.letters state.state tools values"
    ),
    "history.archive": (
        "errors json_scan rawjson state.bounds state.closed_turns state.codec state.media state.media_rows "
        "state.parts state.records state.segments state.state state.turn_rows values"
    ),
    "history.files": "state.blob state.codec",
    "history.diff": "state.closed_turns state.codec state.records state.state values",
    "history.markdown": "backends.base history.turns messages render state.codec",
    "history.export": (
        "backends.base errors history.archive history.open.journal history.open.steps history.rewrite.mend "
        "history.turns history.wires state.blob state.codec state.parts state.placing state.segments "
        "state.state values"
    ),
    "history.go_states": (
        "backends errors history.convert history.update options rawjson render state.codec state.letters "
        "state.records state.state values"
    ),
    "history.upgrade": "state.blob state.codec state.formats state.reseal state.state",
    "history.verify": (
        "errors history.archive history.open.journal history.open.steps history.rewrite.repair "
        "history.wires state.codec state.placing state.state"
    ),
    "history.rewrite": "",
    "history.rewrite.unsign": (
        "backends.base history.archive state.closed_turns state.records state.state values"
    ),
    "history.rewrite.mend": (
        "backends.atoms backends.base backends.narrow backends.rules errors history.open.journal messages "
        "rawjson state.letters values"
    ),
    "history.rewrite.rewritten": (
        "backends.base history.archive history.open.turn_ids history.rewrite.unsign state.closed_turns "
        "state.records state.state values"
    ),
    "history.rewrite.repair": (
        "backends.base backends.rules history.archive history.rewrite.mend history.rewrite.rewritten "
        "history.rewrite.unsign state.closed_turns state.letters state.records state.state values"
    ),
    "history.rewrite.narrow": (
        "backends.base backends.narrow errors history.archive history.rewrite.mend history.rewrite.repair "
        "history.rewrite.rewritten history.rewrite.unsign state.closed_turns state.records state.state "
        "values"
    ),
    "history.rewrite.contexts": (
        "backends.base messages reading render state.closed_turns state.letters state.state values"
    ),
    "history.rewrite.cut": (
        "backends.base compaction history.archive history.meter history.open.room history.open.turn_ids "
        "history.rewrite.contexts history.rewrite.questions history.rewrite.resting history.rewrite.unsign "
        "json_scan messages reading render result state.closed_turns state.codec state.records state.state "
        "values"
    ),
    "history.rewrite.resting": "history.meter state.bounds state.records state.state values",
    "history.rewrite.questions": "compaction messages state.bounds state.state values",
    "history.size": "backends.base history.meter history.wires state.codec state.state tokens",
    "history.append": (
        "backends.base errors history.archive history.open.inbox history.rewrite.repair history.wires "
        "messages state.codec state.records state.state values"
    ),
    "history.wires": "backends backends.base errors",
    "history.undo": (
        "backends.base history.archive history.meter history.rewrite.repair history.rewrite.unsign "
        "history.wires state.bounds state.closed_turns state.codec state.parts state.records state.state "
        "values"
    ),
    "history.update": "state.bounds state.codec state.records state.state values",
    "history.branch": (
        "backends.base history.archive history.meter history.open.turn_ids history.wires options "
        "state.closed_turns state.codec state.parts state.records state.state values"
    ),
    "history.rebase": (
        "backends.base errors history.meter history.open.turn_ids history.rewrite.unsign history.translate "
        "history.wires state.bounds state.closed_turns state.codec state.records state.state values"
    ),
    "history.info": (
        "backends.capabilities errors events history.meter history.open.answers history.open.failed "
        "history.open.journal messages options state.blob state.codec state.letters state.outline "
        "state.parts state.records state.segments state.state values"
    ),
    "history.transcript_json": "",
    "history.transcript": (
        "citations escaping history.open.answers history.transcript_json messages prices showing values"
    ),
    "history.turns": (
        "backends.base errors history.archive history.info history.open.failed history.open.inbox "
        "history.open.steps history.rewrite.repair history.transcript history.wires messages rawjson "
        "reading state.closed_turns state.codec state.letters state.records state.state values"
    ),
    "history.redact": "",
    "history.redact.matching": "escaping",
    "history.redact.json_tree": "json_scan",
    "history.redact.words": "",
    "history.redact.entries": (
        "history.redact.json_tree history.redact.matching history.redact.words json_scan"
    ),
    "history.redact.rows": (
        "history.redact.entries messages rawjson state.bounds state.closed_turns state.records "
        "state.row_ends values"
    ),
    "history.redact.signatures": "backends.base state.closed_turns state.records values",
    "history.redact.archived": (
        "history.archive rawjson state.closed_turns state.codec state.media state.media_rows state.parts "
        "state.records state.segments state.state state.stripped state.turn_rows values"
    ),
    "history.redact.passes": (
        "backends.base history.redact.archived history.redact.entries history.redact.rows "
        "history.redact.signatures history.rewrite.unsign history.wires state.closed_turns state.codec "
        "state.records state.state values"
    ),
    "history.redact.redaction": (
        "backends.base history.archive history.redact.archived history.redact.entries "
        "history.redact.matching history.redact.passes history.wires state.codec state.parts state.records "
        "state.state state.stripped values"
    ),
    "history.recall": "",
    "history.recall.search": "",
    "history.recall.passages": (
        "backends.base compaction errors history.archive history.info messages reading state.closed_turns "
        "state.codec state.media state.parts state.state values"
    ),
    "history.recall.page": "history.recall.passages history.recall.search tokens values",
    "history.translate": (
        "backends backends.atoms backends.base errors history.meter history.open.inbox history.open.journal "
        "history.open.steps history.open.turn_ids history.rewrite.mend history.rewrite.repair history.wires "
        "messages rawjson reading state.closed_turns state.codec state.letters state.parts state.records "
        "state.row_ends state.state values"
    ),
    "history.convert": (
        "backends backends.base backends.narrow backends.rules errors history.open.steps "
        "history.rewrite.mend history.rewrite.repair history.rewrite.unsign history.wires messages options "
        "rawjson reading "
        "state.closed_turns state.codec state.letters state.records state.state values"
    ),
    # the turn: what yields effects
    "turn": "",
    "turn.deadlines": "values",
    "turn.outages": "",
    "turn.flow": "again backends.base events process values",
    "logs": "errors events turn.flow usage",
    "telemetry": (
        "backends.base errors events extras messages result turn.flow turn.plan usage values version"
    ),
    "mcp": "rawjson addresses errors extras history.open.answers messages tools",
    "turn.plan": (
        "backends.base errors history.open.answers messages options state.codec turn.flow turn.outages values"
    ),
    "turn.timing": "options turn.deadlines turn.flow",
    "turn.telling": "errors messages result tools turn_warnings values",
    "turn.spending": "messages options prices turn.telling values",
    "turn.standing": (
        "history.open.inbox history.open.journal history.open.room messages state.codec state.parts "
        "state.records state.state turn.plan turn.timing values"
    ),
    "turn.ledger": (
        "again backends.base errors events history.archive history.meter history.open.failed "
        "history.open.journal history.rewrite.unsign messages prices state.records state.state tokens "
        "turn.flow turn.plan turn.spending turn.standing turn.telling turn_warnings values"
    ),
    "turn.body": "backends.base turn.deadlines turn.flow turn.ledger",
    "turn.retry": "backends.base events turn.body turn.deadlines turn.flow turn.ledger values",
    "turn.receive": (
        "backends.base errors events history.open.inbox messages state.state turn.body turn.deadlines "
        "turn.flow turn.ledger"
    ),
    "turn.model_failures": "backends.base errors turn.ledger turn.retry",
    "turn.model_call": (
        "backends.base errors events history.meter history.open.admission history.open.steps "
        "history.rewrite.narrow history.rewrite.repair rawjson turn.body turn.deadlines turn.flow "
        "turn.ledger turn.model_failures turn.receive turn.request turn.retry values"
    ),
    "turn.tool_failures": "errors state.records turn.ledger",
    "turn.fitting": (
        "history.open.admission history.open.journal history.open.room state.records state.state turn.ledger"
    ),
    "turn.tool_calls": (
        "again backends.base errors events history.open.admission history.open.answers history.open.inner "
        "history.open.journal history.open.turn_ids messages state.records state.state tools turn.fitting "
        "turn.flow turn.ledger turn.recall turn.tool_failures values"
    ),
    "turn.limits": "errors history.open.journal messages prices state.records turn.ledger",
    "turn.tool_texts": "backends.base state.records",
    "turn.recall": (
        "compaction errors history.recall.page history.recall.passages tools turn.flow turn.ledger "
        "turn.plan turn.telling"
    ),
    "turn.handed": "backends.base tools",
    "turn.request": (
        "backends.base context_edits history.open.journal state.letters state.records tools turn.handed "
        "turn.ledger turn.plan turn.recall turn.tool_texts values"
    ),
    "turn.strategy_asks": (
        "backends.base compaction messages turn.flow turn.ledger turn.request turn.retry values"
    ),
    "turn.shrink": (
        "backends.rules compaction errors events history.archive history.meter history.rewrite.cut "
        "history.rewrite.questions history.rewrite.resting history.rewrite.unsign messages result "
        "state.state turn.flow turn.ledger turn.request turn.strategy_asks turn_warnings values"
    ),
    "turn.checks": (
        "errors history.open.journal history.open.room messages state.records state.state turn.flow "
        "turn.ledger turn.shrink"
    ),
    "turn.marks": "events history.open.room state.state turn.ledger values",
    "turn.beginning": (
        "backends.capabilities errors history.meter history.open.answered history.open.attempts "
        "history.open.failed history.open.inbox history.open.inner history.open.journal history.open.steps "
        "history.open.turn_ids history.rewrite.repair messages output.spec state.records state.segments "
        "state.state turn.fitting turn.foreign turn.ledger turn.request turn.tool_calls turn_warnings "
        "values"
    ),
    "turn.foreign": "errors history.open.journal state.state turn.plan values",
    "turn.relay": (
        "backends.base errors events messages result state.records turn.engine turn.flow turn.outages "
        "turn.plan values"
    ),
    "turn.engine": (
        "backends.base citations errors events history.open.attempts history.open.journal "
        "history.open.steps history.open.turn_ids messages output.misfit output.words reading result "
        "state.blob state.records state.state turn.answer turn.beginning turn.checks turn.flow turn.ledger "
        "turn.limits turn.marks turn.model_call turn.plan turn.request turn.shrink turn.tool_calls "
        "turn_warnings values"
    ),
    "turn.count_tokens": (
        "backends.base errors history.open.inbox history.open.journal history.open.steps state.state "
        "turn.body turn.deadlines turn.flow turn.foreign turn.ledger turn.model_failures turn.request "
        "turn.retry"
    ),
    "turn.compact_now": (
        "errors events history.rewrite.repair result state.blob state.state turn.flow turn.foreign "
        "turn.ledger turn.plan turn.request turn.shrink values"
    ),
    # a conversation in a store: rules that know a store by its shape only
    "kept": "",
    "kept.facts": "state.codec state.records stores.layout",
    "kept.whole": (
        "errors kept.facts kept.parts state.blob state.codec state.parts state.placing state.state "
        "stores.base stores.layout"
    ),
    "kept.parts": (
        "errors history.archive state.blob state.codec state.outline state.parts state.placing "
        "state.state stores.base stores.layout"
    ),
    "kept.row_calls": "backends.base errors state.codec turn.flow values",
    "kept.row_lease": "errors kept.parts kept.row_calls stores.layout turn.flow",
    "kept.row_parts": (
        "errors kept.facts kept.parts kept.row_calls kept.row_lease state.parts state.placing state.records "
        "state.state stores.layout turn.flow"
    ),
    "kept.row": (
        "errors events history.info history.rebase kept.row_calls kept.row_parts state.records state.state "
        "stores.layout turn.flow values"
    ),
    "kept.stops": "errors kept.row kept.row_calls stores.layout turn.flow",
    "kept.privacy": (
        "errors history.export history.redact.matching history.redact.redaction kept.row "
        "kept.row_calls state.state turn.flow values"
    ),
    "kept.turn": (
        "errors events history.open.turn_ids kept.row kept.row_calls kept.stops messages result "
        "state.state turn.engine turn.flow turn.plan turn.relay turn_warnings values"
    ),
    "kept.summaries": "turn.flow values",
    "kept.compaction": "errors kept.row kept.row_calls result turn.flow values",
    "kept.changes": (
        "errors events history.branch history.info history.undo kept.row kept.row_calls state.reseal "
        "state.state turn.flow"
    ),
    "kept.ending": "again events exits observers process turn.flow",
    # edges: the only places that touch clocks, sockets, threads, loops, files
    "edges": "",
    "edges.watch": "process",
    "edges.aside": "process",
    "edges.late": "",
    "edges.wait": "turn.deadlines",
    "edges.sync_edge": "again backends.base edges.aside edges.watch tools turn.deadlines turn.flow values",
    "edges.async_edge": "again backends.base edges.late edges.wait tools turn.flow values",
    "kept.lease": "edges.late edges.watch",
    "backends": (
        "backends.base backends.capabilities backends.gating backends.rules calling citations context_edits "
        "edges.aside messages output.refused output.strict process rawjson render values"
    ),
    "stores.layout": "",
    "stores.base": "stores.layout",
    "stores": (
        "addresses again edges.late edges.watch errors extras process stores.base stores.layout undisturbed"
    ),
    "integrations": (
        "errors escaping extras history.info history.open.answers history.turns messages state.blob "
        "state.codec stores stores.layout"
    ),
    "sim": "",
    # what a user meets
    "kept.facade": (
        "backends.base calling errors history.info history.open.answers history.redact.matching "
        "history.turns history.update kept.changes kept.compaction kept.facts kept.lease kept.parts "
        "kept.privacy kept.row kept.row_calls kept.stops kept.turn messages options result state.blob "
        "state.codec state.state stores.layout tools turn.flow turn.plan undisturbed values"
    ),
    "conversation": (
        "calling errors history.open.answers history.redact.matching history.redact.redaction history.turns "
        "kept.changes kept.ending kept.facade kept.privacy kept.summaries kept.turn messages misplaced "
        "observers options result turn.flow turn.plan"
    ),
    "async_conversation": (
        "calling errors history.open.answers history.redact.matching history.redact.redaction history.turns "
        "kept.changes kept.ending kept.facade kept.privacy kept.summaries kept.turn messages misplaced "
        "observers options result turn.flow turn.plan"
    ),
    "handles": "calling edges.sync_edge errors events logs messages observers result turn.flow",
    "hand_off": "errors history.open.answers result tools",
    "series": "errors result turn_warnings",
    "stepping": "errors history.open.answers result values",
    "places": "",
    "misplaced": "options places",
    "facade": (
        "backends.base calling errors events handles history.append history.info history.open.answers "
        "history.open.inbox history.translate history.wires kept.facade logs messages misplaced observers "
        "options output.wanted result series state.blob state.codec state.formats state.records tools "
        "turn.compact_now turn.flow turn.outages turn.plan values"
    ),
    "chat": (
        "backends backends.base calling conversation edges.sync_edge errors facade hand_off handles "
        "history.open.answers misplaced observers options result stepping tools turn.count_tokens turn.flow "
        "turn.plan turn.relay"
    ),
    "async_chat": (
        "async_conversation backends backends.base calling edges.async_edge errors facade hand_off handles "
        "history.append history.open.answers messages misplaced observers options result state.blob "
        "state.codec stepping tools turn.count_tokens turn.flow turn.plan turn.relay"
    ),
    "serve": (
        "async_chat errors events extras frontends handles history.open.answers history.open.turn_ids "
        "history.turns kept.facade kept.summaries messages options prices result state.codec state.state "
        "states stores.base turn_warnings values"
    ),
    "states": (
        "history.branch history.convert history.diff history.export history.files history.go_states "
        "history.info history.markdown history.rebase history.redact.redaction history.size "
        "history.transcript history.transcript_json history.translate history.turns history.undo "
        "history.update history.upgrade history.verify state.formats state.text stepping"
    ),
    "goaitools_py": (
        "async_chat async_conversation backends.base chat compaction conversation errors events handles "
        "history.open.answers messages options result seal state.codec tools turn_warnings version"
    ),
    "page": (
        "async_chat errors frontends history.branch history.diff history.export history.info "
        "history.transcript history.turns kept.facade messages serve state.closed_turns state.state "
        "stores.base values"
    ),
    "frontends": (
        "errors events history.open.answers history.turns messages rawjson render result state.text tools "
        "values"
    ),
    "testing": (
        "async_chat backends backends.base backends.rules errors history.convert history.turns "
        "history.verify messages rawjson reading render sim stores stores.base stores.layout values"
    ),
    "cli": (
        "addresses backends backends.capabilities compaction errors escaping events goaitools_py "
        "history.branch history.convert history.diff history.export history.files history.go_states "
        "history.info history.markdown "
        "history.redact.matching history.redact.redaction history.translate history.turns history.undo "
        "history.upgrade kept.changes kept.row kept.whole mcp messages page prices rawjson render seal "
        "sim state.blob state.codec state.formats state.reseal state.text states stores testing values"
    ),
    "__main__": "cli",
}
"""Which part may import which at module level or inside a function. `goaitools_py` is the package's top."""

LAZY = {
    ("backends", "sim"): "the backend called 'sim' starts the simulator at its first call",
}
"""Imports against the direction, allowed inside a function only, and why."""

NEVER = (
    ("state.blob", "messages"),
    ("state.codec", "state.blob"),
    ("rawjson", "state.state"),
    ("state.state", "backends.base"),
    ("backends", "state.state"),
    ("backends", "turn.engine"),
    ("compaction", "state.state"),
    ("tools", "turn.engine"),
    ("turn.engine", "chat"),
    ("turn.engine", "handles"),
    ("handles", "turn.engine"),
    ("turn.engine", "backends"),
    ("turn.engine", "edges.sync_edge"),
    ("chat", "stores"),
    ("kept.turn", "edges.sync_edge"),
    ("kept.turn", "edges.async_edge"),
    ("stores", "state.blob"),
    ("seal.encrypted", "state.state"),
    ("seal.signed", "state.state"),
    ("state.blob", "seal"),
    ("state.codec", "seal"),
    ("history.convert", "turn.engine"),
    ("sim", "backends.base"),
    ("goaitools_py", "sim"),
)
"""What must never be known, over however many steps."""


class Import(NamedTuple):
    """One import of a module of ours. `lazy`: it stands inside a function."""

    source: str
    target: str
    lazy: bool


@functools.cache
def tree_of(module: str) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def statements(node: ast.AST, with_types: bool, lazy: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    """The statements in a node, and whether a function holds each. Imports are not in expressions."""
    yield node, lazy
    lazy = lazy or isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    is_for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    for name in ("body", "handlers", "cases", "orelse", "finalbody"):
        found = getattr(node, name, ())
        if isinstance(found, list) and not (name == "body" and is_for_types and not with_types):
            for child in found:
                yield from statements(child, with_types, lazy)


def imports_of(module: str, *, with_types: bool = False) -> Iterator[Import]:
    """The imports of a module from the package. `with_types`: also those that only type checkers see."""
    folder = list(MODULES[module].relative_to(PACKAGE).parts[:-1])
    for node, lazy in statements(tree_of(module), with_types):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = folder[: len(folder) - node.level + 1] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                deeper = ".".join([*base, alias.name])
                yield Import(module, deeper if deeper in MODULES else ".".join(base) or "__init__", lazy)


@functools.cache
def all_imports() -> list[Import]:
    """The imports of all modules. It reads the whole package, so only once a test needs it."""
    return sorted({found for module in MODULES for found in imports_of(module)})


def part(module: str) -> str:
    """The row of the table that a module belongs to: its own, else its package's."""
    if module == "__init__":
        return "goaitools_py"
    while module not in ALLOWED and "." in module:
        module = module.rpartition(".")[0]
    return module


def reachable(start: str) -> set[str]:
    """Everything that a part knows of, over any number of steps of the table."""
    found: set[str] = set()
    left = [start]
    while left:
        for name in ALLOWED[left.pop()].split():
            if name not in found:
                found.add(name)
                left.append(name)
    return found


# -------------------------------------------------------------------------------------------- direction


def test_every_part_has_a_row() -> None:
    """The table names every module and package, and nothing that is not there."""
    assert {part(module) for module in MODULES} == set(ALLOWED)


def test_imports_are_those_of_the_table() -> None:
    """No part imports another that its row does not name; exceptions stand inside functions."""
    wrong = [
        found
        for found in all_imports()
        if (source := part(found.source)) != (target := part(found.target))
        and target not in ALLOWED[source].split()
        and not (found.lazy and (source, target) in LAZY)
    ]

    assert wrong == []


def test_imports_are_relative() -> None:
    """Modules of the package name each other relatively, so that the table sees every import."""
    absolute = [
        (module, name)
        for module in MODULES
        for node, _ in statements(tree_of(module), with_types=True)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
        if name.partition(".")[0] == "goaitools_py"
    ]

    assert absolute == []


def test_the_exceptions_are_in_use() -> None:
    """An exception that nothing needs any more is taken out of the list."""
    used = {(part(found.source), part(found.target)) for found in all_imports() if found.lazy}

    assert set(LAZY) <= used


def test_the_table_points_one_way() -> None:
    """No part imports another that imports it, over any number of steps."""
    rows = {name: row.split() for name, row in ALLOWED.items()}

    graphlib.TopologicalSorter(rows).prepare()


def test_modules_do_not_import_in_circles() -> None:
    """Also inside a package no import at module level leads back to where it began."""
    known: dict[str, set[str]] = {}
    for found in all_imports():
        if not found.lazy and not found.source.startswith(f"{found.target}."):
            known.setdefault(found.source, set()).add(found.target)

    graphlib.TopologicalSorter(known).prepare()


def test_no_import_at_all_leads_back() -> None:
    """Not one inside a function either, nor one that only type checkers see.

    A module may name its own package, which has begun to load before it.
    """
    known: dict[str, set[str]] = {}
    for module in MODULES:
        for found in imports_of(module, with_types=True):
            if found.target != module and not module.startswith(f"{found.target}."):
                known.setdefault(module, set()).add(found.target)

    graphlib.TopologicalSorter(known).prepare()


@pytest.mark.parametrize(("source", "target"), NEVER)
def test_what_must_never_be_known(source: str, target: str) -> None:
    """The walls of the house: what a part must not know, it does not know through others either."""
    assert target not in reachable(source)


# ------------------------------------------------------------------------------------------------- cost

HEAVY = (
    "openai",
    "anthropic",
    "cryptography",
    "httpx",
    "httpx2",
    "pydantic",
    "docstring_parser",
    "genai_prices",
    "tiktoken",
    "asyncio",
    "sqlite3",
    "sqlalchemy",
    "django",
    "http.server",
    "socketserver",
    "goaitools_py.sim",
    "goaitools_py.cli",
    "goaitools_py.seal",
    "goaitools_py.testing",
    "goaitools_py.fields",
    "goaitools_py.backends.openai.responses",
    "goaitools_py.backends.anthropic.messages",
)
NEEDED = {
    "importing the package": "import goaitools_py",
    "naming backends and reading states": (
        "from goaitools_py import AsyncChat, Chat, event\n"
        "from goaitools_py.states import inspect_state, read_history, state_messages\n"
        "Chat('openai:MODEL'), AsyncChat('sim')\n"
        "state = Chat('openai:MODEL').append_to_state(None, event('It rains.'))\n"
        "inspect_state(state), read_history(state), state_messages(state)"
    ),
}


@pytest.mark.parametrize("code", NEEDED.values(), ids=NEEDED)
def test_little_is_loaded(code: str) -> None:
    """No SDK, HTTP client, schema library, event loop, database or simulator is loaded before it is used."""
    program = (
        f"import sys, time\nstart = time.process_time()\n{code}\n"
        "print(f'{time.process_time() - start:.3f} s CPU', file=sys.stderr)\n"
        "print(*sys.modules, sep='\\n')"
    )

    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    print(ran.stderr)
    assert set(HEAVY) & set(ran.stdout.split()) == set()


AT_IMPORT = 85
"""How many modules of its own the package may load at its import. More than half come when a chat needs them:
the engine of a turn, the edges of an event loop, the translation between provider APIs."""
LATER = (
    "goaitools_py.turn.engine",
    "goaitools_py.history.append",
    "goaitools_py.history.rewrite.repair",
    "goaitools_py.state.state",
    "goaitools_py.history.translate.state",
    "goaitools_py.backends.translate",
    "goaitools_py.showing",
)
PATTERNS = 8
"""How many patterns it may compile at its import: each takes as long as a small module."""
COUNTED = """
import re, sys

compiled, compile = [], re.compile


def noted(*args):
    if "goaitools_py" in sys._getframe(1).f_code.co_filename:
        compiled.append(args[0])
    return compile(*args)


re.compile = noted
import goaitools_py

print(len(compiled))
print(*[name for name in sys.modules if name.partition(".")[0] == "goaitools_py"], sep="\\n")
"""


def test_the_import_loads_what_a_chat_is_made_of() -> None:
    """Counted, because the time of an import depends on the machine."""
    ran = subprocess.run(
        [sys.executable, "-c", COUNTED],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    compiled, *own = ran.stdout.split()
    assert set(LATER) & set(own) == set()
    assert len(own) <= AT_IMPORT
    assert int(compiled) <= PATTERNS


# ----------------------------------------------------------------------------------------------- safety


def test_nothing_can_run_what_it_reads() -> None:
    """No file of the package mentions pickle, eval, exec or import by name.

    One imports a module that the user names on the command line: `goaitools chat --tools MODULE:NAME`.
    """
    forbidden = re.compile(r"pickle|\beval\(|\bexec\(|\b__import__\(|import_module|\bmarshal\b|\bshelve\b")

    found = [name for name, path in MODULES.items() if forbidden.search(path.read_text(encoding="utf-8"))]

    assert found == ["cli.toolbox"]
