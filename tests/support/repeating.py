"""Repeated runs of the tests, with stored outcomes: `make repeat`.

The goal is three successful runs of all tests in a row on an idle machine, three beside two busy loops, and 200 in a
row of each test of `MENDED` beside busy loops. Each call continues where the last one stopped, even if the code has
changed since, and prints a table of all runs.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

RUNS = Path("build", "repeated.jsonl")
"""File with a line for each run on this machine."""
WHOLE = "make test"
WANTED_WHOLE, WANTED_EACH, AT_ONCE = 3, 200, 50
BUSY = 2
"""Number of processes that use all processor time (busy loops)."""
MENDED = (
    "tests/broker/deployment/test_units.py::test_the_broker_does_all_its_work_as_confined",
    "tests/broker/handlers/test_budgets.py"
    "::test_the_worst_requests_of_several_users_are_refused_and_memory_is_given_back",
    "tests/broker/services/network/test_depots.py::test_coget_gets_tickets_from_the_broker",
    "tests/broker/reports/test_overview.py::test_today_and_this_week_begin_at_midnight",
    "tests/broker/reports/test_significance.py::test_it_is_a_probability_that_no_order_and_no_scale_changes",
    "tests/broker/subprocesses/test_separate_process.py::test_users_over_their_limits_are_refused_with_a_retry_time",
    "tests/broker/worker/test_carrying.py::test_a_server_that_dies_costs_time_but_no_arrived_bytes",
    "tests/broker/services/collections/test_hidden.py::test_users_who_may_see_a_collection_can_ask_by_its_id",
    "tests/broker/worker/test_lost_workers.py::test_a_worker_without_its_database_names_no_file",
    "tests/broker/worker/test_random_trees.py::test_killed_workers_do_not_change_what_a_task_does",
    "tests/broker/worker/test_simulated_tasks.py::test_a_task_does_exactly_what_was_submitted",
    "tests/broker/services/tasks/test_watching.py::test_one_query_serves_all_watchers",
    "tests/coalloc/broker_client/test_broker_client.py::test_an_answer_without_end_takes_no_memory",
    "tests/coalloc/depot/daemon/test_broker_link.py::test_legs_are_reported_once",
    "tests/coalloc/engine/gridftp/test_gridftp_source.py::test_a_server_that_stops_answering",
    "tests/coalloc/engine/gridftp/test_thirdparty.py::test_a_server_stands_still",
    "tests/coalloc/engine/gridftp/test_thirdparty_over_depots.py"
    "::test_the_reason_of_a_connection_that_was_not_relayed_is_known",
    "tests/coalloc/history/formats/test_logs.py::test_the_transfer_log_of_a_real_gridftp_server",
    "tests/coalloc/history/test_transfers.py::test_several_cogets_write_at_once",
    "tests/coalloc/download/test_to_server.py::test_proxies_that_are_named_outright",
    "tests/broker/services/network/test_depots_and_broker.py"
    "::test_depots_measure_legs_and_forward_even_after_the_broker_dies",
    "tests/coalloc/cli/test_get_many.py::test_after_a_kill_the_same_command_completes_the_rest",
    "tests/coalloc/collect/test_collecting.py::test_a_file_that_changes_meanwhile_is_not_mixed",
    "tests/coalloc/collect/test_connection_limit.py"
    "::test_others_get_a_connection_that_is_idle_while_a_piece_is_in_flight",
    "tests/coalloc/plugins/test_many_workers.py::test_workers_are_calls_of_htcondors_plugin",
    "tests/coalloc/download/test_in_order.py::test_the_last_bytes_of_a_dead_server_are_compared_with_another_one",
    "tests/coalloc/download/test_to_server.py::test_one_file_from_three_servers",
    "tests/faults/test_collecting_far.py::test_files_behind_a_narrow_link_are_relayed",
    "tests/faults/test_vanishing_source.py::test_delivered_bytes_are_kept_and_the_rest_is_fetched_in_few_pieces",
    "tests/testbed/test_wan.py::test_a_route_back_may_be_another",
    "tests/faults/test_spare_sources.py::test_a_spare_source_comes_back_when_another_one_fails",
    "tests/faults/test_spare_sources.py::test_connections_and_slots_are_free_before_the_transfer_is_over",
    "tests/coalloc/plugins/test_pegasus.py::test_a_file_comes_from_its_replicas_with_the_lines_and_records_of_pegasus",
    "tests/broker/worker/test_wake_ups.py::test_the_workers_of_a_site_are_woken_and_those_of_all_sites",
    "tests/coalloc/depot/daemon/test_ports.py::test_data_ports_are_those_of_the_option",
    "tests/faults/test_depots.py::test_the_usual_route_is_in_the_configuration",
    "tests/faults/test_losses.py::test_streams_increase_if_packets_are_lost",
    "tests/faults/test_deadlines.py::test_a_deadline_that_cannot_be_kept_is_refused_and_leaves_nothing",
    "tests/broker/worker/test_carrying.py::test_a_partial_file_that_is_gone_is_made_anew",
    "tests/faults/test_real_downloads.py::test_a_server_that_is_killed_costs_time_not_data",
    "tests/faults/test_replaced.py::test_file_replaced_during_a_fetch_is_refused_and_then_fetched_anew",
    "tests/faults/test_two_routes.py::test_after_a_probe_a_small_file_comes_over_the_faster_route",
    "tests/coalloc/download/test_in_order.py::test_two_replicas_that_differ_are_noticed",
)
"""Tests that once failed because of a defect of the test, and were fixed."""


class Run(NamedTuple):
    """The outcome of one run of tests.

    :param what: `make test`, or a test
    :param busy: whether busy loops ran beside it
    :param times: number of times that it ran the test
    :param failed: names of failed tests
    """

    what: str
    busy: bool
    commit: str
    seconds: float
    times: int
    failed: list[str]


def main() -> int:
    """Start missing runs until the time is over; return 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30, help="time after which no run is started (default: 30)")
    end, failed = time.monotonic() + 60 * parser.parse_args().minutes, False
    while time.monotonic() < end and (missing := next(_missing(_runs()), None)):
        run = _run(*missing)
        RUNS.parent.mkdir(exist_ok=True)
        with RUNS.open("a") as file:
            file.write(json.dumps(run._asdict()) + "\n")
        failed |= bool(run.failed)
    print(_table(_runs()))
    return int(failed)


def _runs() -> list[Run]:
    return [Run(**json.loads(line)) for line in RUNS.read_text().splitlines()] if RUNS.exists() else []


def _missing(runs: list[Run]) -> Iterator[tuple[str, bool]]:
    """Yield each missing run, and whether it needs busy loops; runs of all tests come first."""
    for busy in (False, True):
        if _in_a_row(runs, WHOLE, busy) < WANTED_WHOLE:
            yield WHOLE, busy
    yield from ((test, True) for test in MENDED if _in_a_row(runs, test, True) < WANTED_EACH)


def _in_a_row(runs: list[Run], what: str, busy: bool) -> int:
    """Return the number of successful runs since the last failure."""
    green = 0
    for run in runs:
        if (run.what, run.busy) == (what, busy):
            green = 0 if run.failed else green + run.times
    return green


def _run(what: str, busy: bool) -> Run:
    times = 1 if what == WHOLE else AT_ONCE
    words = [sys.executable, "-m", "pytest", "-q", "-n6", "--dist=load", "-p", "tests.support.again", what]
    command = ["make", "test"] if what == WHOLE else words
    environment = os.environ | {"COGET_TESTS_TIMES": str(times)}
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout
    began = time.monotonic()
    with _busy(BUSY if busy else 0):
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    failed = sorted(set(re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)))
    if done.returncode and not failed:
        failed = [f"status {done.returncode}: {done.stdout.strip().splitlines()[-1:]}"]
    if failed:
        (RUNS.parent / f"repeated-{int(time.time())}.log").write_text(done.stdout + done.stderr)
    return Run(what, busy, commit.strip(), round(time.monotonic() - began, 1), times, failed)


@contextmanager
def _busy(loops: int) -> Iterator[None]:
    with ExitStack() as stack:
        running = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", "while True: pass"])) for _ in range(loops)
        ]
        try:
            yield
        finally:
            for each in running:
                each.kill()


def _table(runs: list[Run]) -> str:
    """Return a table with a row for each kind of run, in Markdown."""
    lines = ["| what | beside | runs | green in a row | seconds (median) | failed |", "|---|---|---|---|---|---|"]
    for what, busy in dict.fromkeys((run.what, run.busy) for run in runs):
        own = [run for run in runs if (run.what, run.busy) == (what, busy)]
        seconds = sorted(run.seconds / run.times for run in own)[len(own) // 2]
        failed = ", ".join(f"{name} ({run.commit})" for run in own for name in run.failed)
        beside = f"{BUSY} busy loops" if busy else "nothing"
        total, green = sum(run.times for run in own), _in_a_row(runs, what, busy)
        lines.append(f"| {what} | {beside} | {total} | {green} | {seconds:.1f} | {failed or 'none'} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
