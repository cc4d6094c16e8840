"""Which tests the short runs leave out, and why.

Every test has at most one of three markers; `tests/conftest.py` gives them.

* ``quick``: one case of each test function that the two others and `SLOW` leave. The edit loop.
* ``heavy``: campaigns of many processes, kills, faults or seeds, and measurements.
* ``service``: needs what a clone does not bring: a database server, a program of npm, a local language model,
  or recorded traffic (the fixture ``data_dir``).

The README's test line runs the quick ones. `.ci/run` runs that line and then the rest: of each test that is
not heavy at most 2 cases, the same ones each time (`GOAITOOLS_CASES`). `.ci/long cases` runs all cases.
"""

from __future__ import annotations

import re

__all__ = ["HEAVY", "SERVICE", "SERVICES", "SLOW", "WHOLE_FILES"]

SERVICES = re.compile(r"\b(postgres|postgresql|mariadb|mysql|redis)\b")
"""Services as the ids of test cases name them: ``test_it[redis-async]`` needs one."""

SERVICE = (
    "cli/test_clusters.py",
    "cli/test_doctor.py::test_a_url_without_a_limit_is_named",
    "cli/test_store.py::test_redis_needs_no_tables",
    "independent/",
    "integrations/test_queue.py",
    "integrations/test_recipes.py",
    "kept/test_full_pools.py::test_a_turn_waits_for_a_connection_no_longer_than_its_own_time",
    "stores/test_pooler.py",
    "stores/test_redis.py",
    "stores/test_replicas.py",
    "stores/test_silence.py::test_an_async_engine_without_a_limit_is_named",
    "stores/test_silence.py::test_an_engine_without_a_limit_is_named_once",
)
"""Beginnings of test ids under `tests/`: here every test needs a service."""

HEAVY = (
    "backends/test_lane.py::test_the_wire_is_that_of_the_sdk_in_200_configurations",
    "backends/test_warm_up.py",  # measures milliseconds
    "chaos/",
    "cli/test_upgrade_races.py",
    "compaction/test_properties.py",
    "durability/",
    "failover/",
    "forks/",
    "history/test_bombs.py",
    "kept/test_any_size.py",
    "kept/test_cancels.py",
    "kept/test_leases_left.py",
    "kept/test_loop_gaps.py",
    "mcp_tools/test_killed_servers.py::test_a_server_that_is_killed_in_a_call_over_a_socket",
    "mcp_tools/test_mcp.py::test_a_call_whose_server_dies_is_unknown",  # starts programs
    "mcp_tools/test_mcp.py::test_a_server_over_http",
    "mcp_tools/test_mcp.py::test_a_server_that_is_killed_in_a_call",
    "mcp_tools/test_questions.py::test_calls_beside_a_question_run_once",
    "mcp_tools/test_questions.py::test_questions_wait_in_the_state_until_all_are_answered",
    "mcp_tools/test_transports.py",
    "kept/test_races.py",
    "kept/test_server_death.py",
    "replay/",
    "seal/test_bombs.py",
    "seal/test_golden.py::test_every_byte_put_in_is_refused",
    "serve/test_schemathesis.py",
    "simulation/",
    "state/test_blob_fuzz.py",
    "stores/test_races.py",
    "stores/test_server_death.py",
    "test_behaviour.py",
    "test_benchmarks.py",
    "test_site.py",  # a build of the whole site, half a minute
    "test_public_api.py::test_the_types_are_as_promised",  # a whole run of mypy
    "turn/test_random_conversations.py",
    "turn/test_state_machine.py",
)
"""Beginnings of test ids under `tests/`."""

SLOW = (
    "backends/test_joined_pieces.py::test_unknown_fields_are_the_same_whatever_way_they_were_cut",
    "backends/test_overflow.py::test_long_prose_is_searched_in_time",
    "cli/test_chat.py::test_a_terminal_gets_a_prompt",
    "cli/test_demo.py",
    "cli/tui/test_app.py",
    "cli/tui/test_picture.py",
    "cli/tui/test_terminal.py",
    "contributing/test_recipes.py",
    "history/test_odd_states.py",
    "history/test_repair.py::test_random_damage_is_mended",
    "history/test_repair_details.py::test_random_damage_beside_provider_tools_is_mended",
    "serve/test_odd_bodies.py",
    "sim/test_responses_rules.py::test_no_json_breaks_the_rules",
    "state/test_state.py::test_mutated_content_never_raises_an_untyped_error",
    "testing/test_dialect_contract.py",
    "test_examples.py",
    "test_imports.py::test_nothing_of_posix_is_needed_at_import",
    "base/test_rawjson.py::test_damaged_json_is_refused_exactly_when_the_standard_library_refuses_it",
    "test_readme.py",
    "types/test_render.py::test_pieces_make_no_block_together",
    "tools/test_schema.py::test_schema_bytes_are_equal_in_every_process",
)
"""Beginnings of test ids that take seconds each: they are in ``-m "not heavy and not service"``, and not in
``-m quick``."""

WHOLE_FILES = tuple(name for name in (*HEAVY, *SERVICE, *SLOW) if "::" not in name)
"""Files and folders without a quick test."""
