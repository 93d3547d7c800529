"""Calls that this process makes side by side: their order, how many at a time, their threads, and an error."""

import contextvars
import pickle
import random
import time
from dataclasses import replace

import numba
import pytest

from oneclass.models.memory_estimates import FitCost
from oneclass.models.numerics.threads import kernel_threads
from oneclass.models.registry import MODELS
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.cluster import LOCAL, imap
from oneclass.tasks.datasets import load_dataset
from oneclass.tasks.demo import DemoSettings, make_demo
from oneclass.tasks.evaluate import jobs
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.evaluate.tables import LEAVE_ONE_OUT_TABLES, PROTOCOL_TABLES
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.stores.home import Home, Limits
from tests.conftest import execute_statement, query_rows
from tests.tasks.conftest import fit_models, split_likes

run = contextvars.ContextVar("run", default="none")


@pytest.fixture
def home(home):
    return replace(home, limits=Limits(threads=2, memory=1 << 30))


def numbered(count):
    return [(number,) for number in range(count)]


def test_answers_come_in_the_order_of_the_calls_with_the_callers_context(home):
    run.set("this one")

    def slow_at_first(home, number):
        time.sleep(0.05 if number % 2 == 0 else 0)
        return number, run.get()

    found = list(imap(LOCAL, slow_at_first, home, numbered(9), label="call"))
    assert found == [(number, "this one") for number in range(9)]


@pytest.mark.parametrize(
    ("cores", "memory", "serial", "at_a_time", "of_each"),
    [(2, 1, False, 2, 1), (2, 1, True, 1, 2), (2, 600 << 20, False, 1, 2), (1, 1, False, 1, 1)],
)
def test_so_many_at_a_time_as_threads_and_memory_have_room_for(home, cores, memory, serial, at_a_time, of_each):
    home, at_work, most = replace(home, limits=replace(home.limits, threads=cores)), set(), []

    def call(home, number):
        at_work.add(number)
        time.sleep(0.02)
        most.append(len(at_work))
        at_work.remove(number)
        with kernel_threads(cores):
            return numba.get_num_threads()

    found = list(imap(LOCAL, call, home, numbered(6), label="call", memory=[memory] * 6, serial=serial))
    assert max(most) == at_a_time
    assert found == [min(of_each, numba.config.NUMBA_NUM_THREADS)] * 6


def test_after_a_call_that_fails_those_that_wait_are_not_made(home):
    made = []

    def call(home, number):
        made.append(number)
        time.sleep(0.01)
        if number == 1:
            raise ValueError("the second")

    with pytest.raises(ValueError, match="the second"):
        list(imap(LOCAL, call, home, numbered(30), label="call"))
    assert max(made) < 10


def test_results_are_not_computed_far_ahead_of_their_reader(home):
    made = []
    answers = imap(LOCAL, lambda home, number: made.append(number), home, numbered(50), label="call")
    next(answers)
    time.sleep(0.1)
    assert len(made) <= 5
    answers.close()


class InAnyOrder:
    """Runs every waiting call, pickled, when a result is asked for, in a drawn order, and that one again."""

    def __init__(self, seed):
        self.random, self.submitted, self.run = random.Random(seed), [], 0

    def submit(self, function, *arguments, label):
        self.submitted.append(pickle.dumps((function, arguments)))
        return LOCAL.submit(self.answer, len(self.submitted) - 1)

    def answer(self, number):
        waiting = list(range(self.run, len(self.submitted)))
        self.random.shuffle(waiting)
        self.run = len(self.submitted)
        for one in [*waiting, number]:
            function, arguments = pickle.loads(self.submitted[one])
            answer = pickle.dumps(function(*arguments))
        return pickle.loads(answer)


SHORT = {name: {"factors": 4, "iterations": 2} for name in ("random_graph", "paired_symbols", "wmf")}
MADE = {name: MODELS[name].Settings(**of) for name, of in {**SHORT, "popularity": {}}.items()}


def evaluate_fits(home, digests, **executor):
    """Return every row of the evaluation's tables, bit for bit, as one run of a name leaves them."""
    execute_statement(home, "delete from operations.stage_results where stage like 'evaluate%'")  # nothing is copied
    for protocol, judged in digests.items():
        assert evaluate(home, "run", protocol, [judged], **executor).failed == {}
    return {table: query_rows(home, f"from evaluation.{table}") for table in (*PROTOCOL_TABLES, *LEAVE_ONE_OUT_TABLES)}


@pytest.mark.slow
def test_the_tables_do_not_depend_on_the_cut_nor_on_the_order_of_the_calls(tmp_path, monkeypatch):
    home = Home(tmp_path, "demo", Limits(threads=2, memory=1 << 30))
    logs = make_demo(home, DemoSettings(users=300, items=200, likes=9_000), 3)
    ingest(home, load_dataset("demo", home.root), logs, "run")
    protocols = ["strong_generalization", "leave_one_out"]
    digests = split_likes(home, *protocols, likes=BinarizeSettings(threshold=4, explicit_negatives=True), seed=0)
    judged = {protocol: fit_models(home, digests[protocol], MADE) for protocol in protocols}
    whole = evaluate_fits(home, judged)
    assert all(whole.values())
    monkeypatch.setattr(jobs, "USERS_PER_BATCH", 1)
    monkeypatch.setattr(FitCost, "users_per_block", lambda cost, items: 40)
    assert evaluate_fits(home, judged) == whole
    executor = InAnyOrder(1)
    assert evaluate_fits(home, judged, executor=executor) == whole
    assert len(executor.submitted) == len(MADE) * (8 + 1 + 1)  # of 295, 30 and 32 users, by 40
