"""Corruptions of a real warehouse, each caught by the rule that is to catch it.

The stages themselves make the warehouse of a small demo. A corruption is made in a transaction, checked with
the values that the stage gave to its own check, and rolled back.
"""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

import duckdb
import pytest

from oneclass import data_contracts
from oneclass.data_contracts.checks import check, check_contracts
from oneclass.data_contracts.contracts import load
from oneclass.models.random_graph.settings import RandomGraphSettings
from oneclass.tasks import datasets
from oneclass.tasks.binarize.settings import BinarizeSettings
from oneclass.tasks.binarize.stage import binarize
from oneclass.tasks.demo.story import DemoSettings, make_demo
from oneclass.tasks.diagnose import diagnose
from oneclass.tasks.evaluate.stage import evaluate
from oneclass.tasks.ingest.stage import ingest
from oneclass.tasks.protocols import ALL_EDGES, PROTOCOLS
from oneclass.tasks.publish.choice import ChosenModel
from oneclass.tasks.publish.settings import PublishSettings
from oneclass.tasks.publish.stage import publish
from oneclass.tasks.split.settings import SplitSettings
from oneclass.tasks.split.stage import split
from oneclass.tasks.stores import warehouse
from oneclass.tasks.stores.home import Home, Limits
from tests.tasks.conftest import train_model

SEED, RUN = 3, "a run"
ASKED = tuple(PROTOCOLS)[:2]
KINDS = {"purchase": 5.0, "cart": 1.5, "view": 0.1, "return": -5.0, "search": 0.0}
FITTED = {"popularity": None, "random_graph": RandomGraphSettings(factors=2, iterations=2, learn_tau=False)}


@dataclass(frozen=True)
class Made:
    """A warehouse that stages made, kept open, and the values that they gave to their contracts, by stage."""

    connection: duckdb.DuckDBPyConnection
    values: dict[str, dict[str, Any]]

    @cached_property
    def state(self) -> list:
        """What the stages left, and what there is again after every mutation."""
        return fingerprint_tables(self.connection)

    def broken(self, table: str, mutation: str = "") -> dict[str, Any]:
        """The rules of a table that do not hold, after a mutation that is then taken back."""
        contract = next(one for one in load() if one.table == table)
        before = self.state
        self.connection.begin()
        try:
            self.connection.execute(mutation or "select 1")
            assert not mutation or fingerprint_tables(self.connection) != before, "the mutation changes nothing"
            results = check_contracts(self.connection, [contract], self.values[contract.stage])
        finally:
            self.connection.rollback()
        return {result.rule: result for result in results if not result.success and result.severity == "error"}


def fingerprint_tables(connection) -> list:
    """A fingerprint of every table."""
    names = "select schema_name || '.' || table_name from duckdb_tables() where not temporary"
    return [
        connection.execute(f"select sum(hash(row)::hugeint), count(*) from {table} as row").fetchone()
        for (table,) in connection.execute(names).fetchall()
    ]


@contextmanager
def record_values(values: dict[str, dict[str, Any]]) -> Iterator[None]:
    """What the stages in the block give to their checks goes into `values` too."""

    def noting(connection, stage, parameters, *more):
        values[stage] = parameters
        return check(connection, stage, parameters, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_contracts, "check", noting)
        yield


def write_demo_log(folder) -> tuple[Home, datasets.Dataset, list]:
    """A home and a log of a small demo."""
    home = Home(folder, "demo", Limits(threads=1, memory=1 << 30))
    return (
        home,
        datasets.load_dataset("demo", folder),
        make_demo(home, DemoSettings(users=200, items=80, likes=4000), SEED),
    )


@contextmanager
def made_by_stages(
    folder, kept: BinarizeSettings, parts: SplitSettings, since=None, until=None, *, whole=False
) -> Iterator[Made]:
    """The log, its edges and its splits; with `whole` also everything that follows from them."""
    values: dict[str, dict[str, Any]] = {}
    home, dataset, logs = write_demo_log(folder)
    with record_values(values):
        run_stages(home, dataset, logs, kept, parts, since, until, whole)
    with warehouse.open_warehouse(home) as connection:
        yield Made(connection, values)


def run_stages(home, dataset, logs, kept, parts, since, until, whole) -> None:
    """As `made_by_stages`."""
    ingest(home, dataset, logs, RUN)
    binarize(home, kept, RUN, since=since, until=until)
    digests = split(home, parts, RUN, protocols=ASKED, seed=SEED).digests
    published = PublishSettings(top_n=5)
    if whole:
        diagnose(home, RUN, SEED)
        for protocol in ASKED:
            evaluate(home, RUN, protocol, digests[protocol], fit_models(home, protocol, digests[protocol]))
        model = fit_models(home, ALL_EDGES, digests[ALL_EDGES])["random_graph"]
        publish(
            home, RUN, published, choice=ChosenModel("random_graph", "like"), model_digest=model,
            matrices_digest=digests[ALL_EDGES],
        )  # fmt: skip


def fit_models(home, protocol, digest):
    return {
        name: train_model(home, digest, name, settings, protocol=protocol, run_id=RUN, seed=SEED).digest
        for name, settings in FITTED.items()
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run of all stages without any filter."""
    likes = BinarizeSettings(threshold=4, explicit_negatives=True)
    parts = SplitSettings(scheme="hashed", held_out_share=0.2)
    with made_by_stages(tmp_path_factory.mktemp("whole"), likes, parts, whole=True) as made:
        yield made


@pytest.fixture(scope="module")
def filtered(tmp_path_factory):
    """Events of three years, every activity filter on, the published split."""
    likes = BinarizeSettings(threshold=4, min_user_edges=4, min_item_edges=6, k_core=10)
    parts = SplitSettings(scheme="liang2018", held_out_users=20, min_user_edges=12, min_item_edges=12)
    years = {"since": date(2002, 1, 1), "until": date(2004, 12, 31)}
    with made_by_stages(tmp_path_factory.mktemp("filtered"), likes, parts, **years) as made:
        yield made


@pytest.fixture(scope="module")
def in_two_files(tmp_path_factory):
    """A log cut into a train and a test file, some edges in both."""
    values: dict[str, dict[str, Any]] = {}
    folder = tmp_path_factory.mktemp("given")
    home, dataset, (log, *_) = write_demo_log(folder)
    header, *lines = log.read_text().splitlines()
    files = [folder / "train.csv", folder / "test.csv"]
    for file, part in zip(files, (lines[:3000], lines[2900:]), strict=True):
        file.write_text("\n".join([header, *part]) + "\n")
    with record_values(values):
        ids = [[one] for one in ingest(home, dataset, files, RUN).file_ids]
        binarize(home, BinarizeSettings(threshold=4), RUN)
        split(home, SplitSettings(), RUN, protocols=["given"], seed=SEED, given_files=ids)
    with warehouse.open_warehouse(home) as connection:
        yield Made(connection, values)


@pytest.fixture(scope="module")
def weighted(tmp_path_factory):
    """A log with kinds of events that fade."""
    folder, rng = tmp_path_factory.mktemp("weighted"), random.Random(SEED)
    lines = [
        f"u{rng.randrange(12)},i{rng.randrange(10)},{rng.choice(list(KINDS))},2026-0{rng.randrange(1, 9)}-01"
        for _ in range(600)
    ]
    (log := folder / "log.csv").write_text("\n".join(["user,item,event,time", *lines]) + "\n")
    home, values = Home(folder, "orders", Limits()), {}
    likes = BinarizeSettings(event_weights=KINDS, half_life_days=90, threshold=2, explicit_negatives=True)
    with record_values(values):
        ingest(home, datasets.Dataset(name="orders", events=KINDS), [log], RUN)
        binarize(home, likes, RUN)
    with warehouse.open_warehouse(home) as connection:
        yield Made(connection, values)


# The user with most edges, the held-out user with most, and an edge of the first.
BUSY = "(select user_index from indexed.interactions group by user_index order by count(*) desc, user_index limit 1)"
BUSY_ID = f"(select user_id from indexed.users where user_index = {BUSY})"
HELD_OUT = """(
    select user_index from indexed.strong_generalization where part <> 'train'
    group by user_index order by count(*) desc, user_index limit 1)"""
EDGE = (
    f"(user_index, item_index) = ({BUSY}, (select min(item_index) from indexed.interactions where user_index = {BUSY}))"
)
INVENTED = """
    insert into indexed.interactions
    select user_index, item_index, 1, now()::timestamp, now()::timestamp, 1, 1, null
    from indexed.users cross join indexed.items anti join indexed.interactions using (user_index, item_index)
    order by user_index, item_index limit 1"""
GRAPH, STRONG, ONE_OUT = "indexed.interactions", "indexed.strong_generalization", "indexed.leave_one_out"
DEGREES, LAWS, HIDDEN = "diagnostics.degrees", "diagnostics.power_law_fits", "diagnostics.hidden_graph_ratios"
METRICS, COMPARED, LISTS = "evaluation.metrics", "evaluation.comparisons", "published.recommendations"
BINS, CELLS, LIKES = "evaluation.ranks_by_degree", "evaluation.ranks_by_both_degrees", "evaluation.like_by_degree"
SWAPPED = "update {0} set {1} = {2}, {2} = {1}"
FIRST_FILE = "(select min(file_id) from operations.log_files)"

# name: (the table whose contract catches it, the rule that does, the mutation)
MUTATIONS = {
    # raw
    "an event twice": ("operations.log_files", "events_counted", "insert into raw.events from raw.events limit 1"),
    "an event lost": ("operations.log_files", "events_counted", ("delete from raw.events where line_number = 2 and "
        f"file_id = {FIRST_FILE}")),
    "six stars": ("raw.events", "value_in_range", "update raw.events set value = 6 where line_number = 2"),
    "stars that are no number": ("raw.events", "value_finite", ("update raw.events set value = 'nan' where line_number "
        "= 2")),
    "an event without an item": ("raw.events", "item_named", ("update raw.events set item_id = '' where line_number = "
        "2")),
    "events of an unknown file": ("raw.events", "file_known", ("update raw.events set file_id = 999 where line_number "
        "= 2")),
    "a file twice": ("operations.log_files", "sha256_unique", ("insert into operations.log_files select max(file_id) + "
        "1, any_value(path), min(sha256), 1, 0, 0, now()::timestamp, null from operations.log_files")),
    "a loss of the funnel too small": ("operations.funnel", "losses_add_up", ("update operations.funnel set lost = "
        "lost - 1 where step = 1")),
    "a step of the funnel lost": ("operations.funnel", "losses_add_up", "delete from operations.funnel where step = 1"),
    "a funnel of fewer lines": ("operations.funnel", "begins_with_the_logs", ("update operations.funnel set remaining "
        "= remaining - 1, lost = if(step = 1, lost - 1, lost)")),
    "a funnel to another graph": ("operations.funnel", "ends_in_the_graph", ("update operations.funnel set items = "
        "items + 1 where items is not null")),
    "a content twice": ("operations.log_files", "content_unique", ("insert into operations.log_files select "
        "max(file_id) + 1, any_value(path), 'other', 1, 0, 0, now()::timestamp, min(content_sha256) from "
        "operations.log_files")),
    "a reject that no file has": ("raw.rejects", "file_known", "insert into raw.rejects values (999, 1, 'x', 'y')"),
    # curated
    "an edge deleted": (GRAPH, "events_folded", f"delete from indexed.interactions where {EDGE}"),
    "a user's edges deleted": (GRAPH, "events_folded", f"delete from indexed.interactions where user_index = {BUSY}"),
    "an edge invented": (GRAPH, "events_folded", INVENTED),
    "a false event count": (GRAPH, "events_folded", f"update indexed.interactions set event_count = 2 where {EDGE}"),
    "a false time": (GRAPH, "events_folded", ("update indexed.interactions set first_at = timestamp '1999-01-01' where "
                                             f"{EDGE}")),
    "an edge twice": (GRAPH, "edge_once", "insert into indexed.interactions from indexed.interactions limit 1"),
    "users and items swapped": (GRAPH, "events_folded", SWAPPED.format(GRAPH, "user_index", "item_index")),
    "an edge under another user's index": (GRAPH, "events_folded", ("update indexed.interactions set user_index = "
        f"(user_index + 1) % 9 where {EDGE}")),
    "a user lost": (GRAPH, "everybody_there", f"delete from indexed.users where user_index = {BUSY}"),
    "an item lost": (GRAPH, "everybody_there", "delete from indexed.items where item_index = 7"),
    "a user lost with its edges": (GRAPH, "everybody_there", (f"delete from indexed.users where user_index = {BUSY}; "
        f"delete from indexed.interactions where user_index = {BUSY}")),
    "an item lost with its edges": (GRAPH, "everybody_there", ("delete from indexed.items where item_index = 7; delete "
        "from indexed.interactions where item_index = 7")),
    "two users' ids exchanged": (GRAPH, "events_folded", ("update indexed.users set user_index = 9 - user_index where "
                                                         "user_index in (4, 5)")),
    "a user's index twice": ("indexed.users", "index_once", ("update indexed.users set user_index = 4 where user_index "
        "= 5")),
    "an item without an index": ("indexed.items", "with_an_edge", "delete from indexed.items where item_index = 7"),
    "a dislike that was none": ("indexed.observed_negatives", "events_folded", ("update indexed.observed_negatives set "
        "item_index = (item_index + 1) % 9 where rowid = 3")),
    "a dislike lost": ("indexed.observed_negatives", "events_folded", ("delete from indexed.observed_negatives where "
        "rowid = 3")),
    # splits
    "targets turned to fold-in": (STRONG, "a_fifth_is_target", (f"update {STRONG} set role = 'fold_in' where role = "
        f"'target' and user_index = {HELD_OUT}")),
    "fold-in turned to targets": (STRONG, "a_fifth_is_target", (f"update {STRONG} set role = 'target' where role = "
        f"'fold_in' and user_index = {HELD_OUT}")),
    "targets and fold-in reversed": (STRONG, "targets_by_hash", f"""update {STRONG} set role = if(item_index in (
        select max(item_index) from {STRONG} where user_index = {HELD_OUT} and role = 'fold_in'), 'target', 'fold_in')
        where user_index = {HELD_OUT} and role <> 'dropped' and item_index in (
            select max(item_index) from {STRONG} where user_index = {HELD_OUT} and role <> 'dropped' group by role)"""),
    "validation relabelled test": (STRONG, "part_by_hash", (f"update {STRONG} set part = 'test' where part = "
                                                           "'validation'")),
    "validation and test exchanged": (STRONG, "part_by_hash", (f"update {STRONG} set part = if(part = 'test', "
        "'validation', 'test') where part <> 'train'")),
    "a split emptied": (STRONG, "everybody_there", f"delete from {STRONG}"),
    "a held-out user lost": (STRONG, "everybody_there", f"delete from {STRONG} where user_index = {HELD_OUT}"),
    "a target in the fold-in too": (STRONG, "edges_agree", (f"insert into {STRONG} select user_index, item_index, "
        f"part, 'fold_in' from {STRONG} where role = 'target' limit 1")),
    "a held-out user in training": (STRONG, "user_in_one_part", (f"update {STRONG} set part = 'train', role = 'fit' "
        f"where user_index = {HELD_OUT} and role = 'target'")),
    "another edge left out": (
        ONE_OUT, "held_out_as_drawn", f"""update {ONE_OUT} set role = if(role = 'train', 'held_out', 'train')
        where user_index = {BUSY} and (role = 'held_out' or item_index = (select min(item_index) from {ONE_OUT} where
        user_index = {BUSY} and role = 'train'))"""),
    "nothing left out": (ONE_OUT, "one_held_out", f"update {ONE_OUT} set role = 'train' where user_index = {BUSY}"),
    "leave_one_out emptied": (ONE_OUT, "edges_agree", f"delete from {ONE_OUT}"),
    # diagnostics
    "a vertex too many": (DEGREES, "vertices_recounted", (f"update {DEGREES} set vertices = vertices + 1 where side = "
                                                         f"'item' and degree = (select max(degree) from {DEGREES} "
                                                         "where side = 'item')")),
    "mu/N is not nu/M": (DEGREES, "densities_agree", f"update {DEGREES} set degree = 2 * degree where side = 'user'"),
    "no laws": (LAWS, "families_complete", f"delete from {LAWS}"),
    "a law missing": (LAWS, "families_complete", f"delete from {LAWS} where side = 'item' and family = 'log_normal'"),
    "likelihood and AIC swapped": (LAWS, "aic_agrees", SWAPPED.format(LAWS, "log_likelihood", "aic")),
    "the sides of the laws swapped": (LAWS, "support_agrees", (f"update {LAWS} set side = if(side = 'user', 'item', "
        "'user')")),
    "a p-value of two": (LAWS, "p_value_in_range", f"update {LAWS} set p_value = 2 where side = 'item'"),
    "positives and negatives swapped": (HIDDEN, "positives_agree", SWAPPED.format(HIDDEN, "positives", "negatives")),
    # fits and evaluation
    "a fit noted twice": ("operations.model_fits", "fit_once", ("insert into operations.model_fits from "
        "operations.model_fits limit 1")),
    "a false mean rank": (METRICS, "mean_rank_agrees", (f"update {METRICS} set value = value - 0.01 where metric = "
                                                       "'mean_rank' and protocol = 'leave_one_out' and model = "
                                                       "'popularity'")),
    "another run's bins": (METRICS, "mean_rank_agrees", (f"update {BINS} set run_id = 'another' where model = "
                                                        "'popularity'")),
    "metrics of another run": ("evaluation.beyond_accuracy", "users_agree", (f"update {METRICS} set run_id = 'another' "
        "where model = 'popularity'")),
    "a metric twice": (METRICS, "metric_once", f"insert into {METRICS} from {METRICS} limit 1"),
    "a recall above one": (METRICS, "value_in_range", f"update {METRICS} set value = 1.5 where metric = 'recall@20'"),
    "a comparison's sign": (COMPARED, "difference_agrees", (f"update {COMPARED} set difference = -difference where "
                                                           "metric = 'ndcg@100'")),
    "a comparison's sides swapped": (COMPARED, "difference_agrees", (f"update {COMPARED} set model = other_model, "
        "other_model = model, score = other_score, other_score = score where metric = 'mean_rank'")),
    "a comparison lost": (COMPARED, "pairs_complete", (f"delete from {COMPARED} where metric = 'recall@50' and "
                                                       "protocol = 'leave_one_out' and other_score = 'like'")),
    "an empty bin of degrees": (BINS, "edges_positive", f"update {BINS} set edges = 0 where side = 'item'"),
    "edges moved between cells": (CELLS, "margins_agree", f"update {CELLS} set user_degree_low = user_degree_low + 1"),
    "like judged on fewer edges": (LIKES, "edges_agree", (f"delete from {LIKES} where degree_low = (select "
                                                         f"max(degree_low) from {LIKES})")),
    # published
    "one user's recommendations missing": (LISTS, "everybody_served", f"delete from {LISTS} where user_id = {BUSY_ID}"),
    "nothing published": (LISTS, "everybody_served", f"delete from {LISTS}"),
    "a shorter list": (LISTS, "everybody_served", f"delete from {LISTS} where rank = 5 and user_id = {BUSY_ID}"),
    "scores that rise with rank": (LISTS, "scores_fall", f"update {LISTS} set score = -score"),
    "two scores exchanged": (LISTS, "scores_fall", f"""update {LISTS} set score = (
        select max(score) + min(score) from {LISTS} where user_id = {BUSY_ID} and rank <= 2) - score
        where user_id = {BUSY_ID} and rank <= 2"""),
    "an item that the user has seen": (LISTS, "nothing_seen", (f"update {LISTS} set item_id = (select min(item_id) "
        f"from curated.interactions where user_id = {BUSY_ID}) where user_id = {BUSY_ID} and rank = 3")),
    "an unknown item": (LISTS, "ids_curated", f"update {LISTS} set item_id = 'x' where rank = 1"),
}  # fmt: skip

CALIBRATION, CONSIDERED, BEYOND = "evaluation.calibration", "evaluation.considered", "evaluation.beyond_accuracy"
ARRIVALS, FITS, DISLIKES = "operations.arrivals", "operations.model_fits", "indexed.observed_negatives"
NEXT_EDGE = f"""(select {{0}} from {GRAPH} as edge where edge.user_index = {GRAPH}.user_index
    order by (edge.item_index <= {GRAPH}.item_index), edge.item_index limit 1)"""
NEXT_ITEM = f"""(select negatives from {HIDDEN} as item where item.r = {HIDDEN}.r
    and item.item_index = ({HIDDEN}.item_index + 1) % (select count(*) from indexed.items))"""
LOWEST_PLACES = ", ".join(f"{name} = greatest({name} - 0.1, 0)" for name in ("p05", "p25", "p50", "p75", "p95"))
HIGH_PLACES = ", ".join(f"{name} = p95" for name in ("p05", "p25", "p50", "p75"))

# Statistics that are possible in themselves and do not follow from the other tables
FALSE_STATISTICS = {
    "edges' times exchanged within users": (GRAPH, "events_folded", (f"update {GRAPH} set first_at = "
        f"{NEXT_EDGE.format('first_at')}, last_at = {NEXT_EDGE.format('last_at')}")),
    "edges' first places exchanged within users": (GRAPH, "events_folded", (f"update {GRAPH} set first_line = "
        f"{NEXT_EDGE.format('first_line')}")),
    "dislikes a day later": (DISLIKES, "events_folded", f"update {DISLIKES} set first_at = first_at + interval 1 day"),
    "dislikes without times": (DISLIKES, "events_folded", f"update {DISLIKES} set first_at = null"),
    "exponents moved": (LAWS, "laws_agree", f"update {LAWS} set exponent = exponent + 0.05"),
    "exponents of users and items exchanged": (LAWS, "laws_agree", (f"update {LAWS} set exponent = (select exponent "
        f"from {LAWS} as other where other.family = {LAWS}.family and other.side <> {LAWS}.side)")),
    "cut-offs doubled": (LAWS, "laws_agree", f"update {LAWS} set cutoff = 2 * cutoff"),
    "likelihoods moved with AIC": (LAWS, "laws_agree", (f"update {LAWS} set log_likelihood = log_likelihood + 10, aic "
                                                        "= aic - 20")),
    "KS distances halved": (LAWS, "laws_agree", f"update {LAWS} set ks = ks / 2"),
    "KS distances of families exchanged": (LAWS, "laws_agree", (f"update {LAWS} set ks = (select ks from {LAWS} as "
        f"other where other.side = {LAWS}.side and other.family = 'exponential')")),
    "hidden negatives moved to the next item": (HIDDEN, "negatives_spread", (f"update {HIDDEN} set negatives = "
        f"least({NEXT_ITEM}, (select count(*) from indexed.users) - positives)")),
    "hidden negatives halved": (HIDDEN, "negatives_counted", f"update {HIDDEN} set negatives = negatives // 2"),
    "hidden negatives lost": (HIDDEN, "negatives_counted", f"update {HIDDEN} set negatives = 0 where item_index = 3"),
    "hidden negatives of one item": (HIDDEN, "negatives_spread", (f"update {HIDDEN} set negatives = if(item_index % 2 "
        "= 0, 0, 2 * negatives)")),
    "observed equal to predicted": (CALIBRATION, "observed_measured", f"update {CALIBRATION} set observed = mean_like"),
    "calibration errors halved": (CALIBRATION, "error_possible", (f"update {CALIBRATION} set standard_error = "
        "standard_error / 2")),
    "considered pairs' errors doubled": (CALIBRATION, "error_possible", (f"update {CALIBRATION} set standard_error = 2 "
        "* standard_error where reference = 'considered'")),
    "considered pairs observed less": (CALIBRATION, "likes_counted", (f"update {CALIBRATION} set observed = observed * "
        "0.9 where reference = 'considered'")),
    "pairs taken from bins": (CALIBRATION, "references_agree", (f"update {CALIBRATION} set pairs = pairs + if(like_low "
        f"= (select min(like_low) from {CALIBRATION} where pairs > 1), 1, 0) - if(like_low = (select max(like_low) "
        f"from {CALIBRATION} where pairs > 1), 1, 0) where reference = 'coin'")),
    "a calibration without likes": (CALIBRATION, "likes_counted", (f"update {CALIBRATION} set observed = 0, "
        "standard_error = null where reference = 'sampled_negatives'")),
    "a calibration of likes alone": (CALIBRATION, "likes_counted", (f"update {CALIBRATION} set observed = 1, "
        "standard_error = null where reference = 'sampled_negatives'")),
    "an AUC halved": (CONSIDERED, "auc_possible", (f"update {CONSIDERED} set value = value / 2 where metric = "
                                                  "'considered_auc'")),
    "an AUC of 0.95": (CONSIDERED, "auc_possible", (f"update {CONSIDERED} set value = 0.95 where metric = "
                                                   "'considered_auc'")),
    "a log loss halved": (CONSIDERED, "auc_possible", (f"update {CONSIDERED} set value = value / 2 where metric = "
                                                      "'considered_log_loss'")),
    "a calibration error halved": (CONSIDERED, "calibration_error_agrees", (f"update {CONSIDERED} set value = value / "
        "2 where metric = 'considered_calibration_error'")),
    "an AUC's error ten times as large": (CONSIDERED, "auc_error_possible", (f"update {CONSIDERED} set standard_error "
        "= 10 * standard_error where metric = 'considered_auc'")),
    "standard errors halved": (METRICS, "standard_error_agrees", (f"update {METRICS} set standard_error = "
        "standard_error / 2")),
    "standard errors of recall doubled": (METRICS, "standard_error_agrees", (f"update {METRICS} set standard_error = 2 "
        "* standard_error where metric = 'recall@20'")),
    "standard errors of nDCG ten times as large": (METRICS, "standard_error_agrees", (f"update {METRICS} set "
        "standard_error = 10 * standard_error where metric = 'ndcg@100'")),
    "standard errors of mean ranks halved": (METRICS, "percentiles_agree", (f"update {METRICS} set standard_error = "
        "standard_error / 2 where metric = 'mean_rank'")),
    "percentiles exchanged": (METRICS, "percentiles_agree", (f"update {METRICS} set metric = if(metric = 'rank_p05', "
        "'rank_p95', 'rank_p05') where metric in ('rank_p05', 'rank_p95')")),
    "percentiles lowered": (METRICS, "percentiles_agree", (f"update {METRICS} set value = value / 2 where "
                                                          "starts_with(metric, 'rank_') or metric = 'median_rank'")),
    "a recall of all above the recall": (METRICS, "metrics_in_order", (f"update {METRICS} set value = least(value + "
        "0.2, 1) where metric = 'recall_of_all@20'")),
    "ties counted against": (METRICS, "metrics_in_order", (f"update {METRICS} set value = value - 0.01 where metric = "
                                                          "'mean_rank_midtie'")),
    "p-values turned round": (COMPARED, "p_value_agrees", f"update {COMPARED} set p_value = 1 - p_value"),
    "p-values of one half": (COMPARED, "p_value_agrees", f"update {COMPARED} set p_value = 0.5"),
    "p-values not corrected": (COMPARED, "adjusted_p_value_agrees", (f"update {COMPARED} set adjusted_p_value = "
        "p_value")),
    "p-values corrected for each metric's pairs twice": (COMPARED, "adjusted_p_value_agrees", (f"update {COMPARED} set "
        "adjusted_p_value = least(1, 2 * adjusted_p_value)")),
    "standard errors of differences ten times as large": (COMPARED, "standard_error_agrees", (f"update {COMPARED} set "
        "standard_error = 10 * standard_error")),
    "standard errors of differences a tenth": (COMPARED, "p_value_agrees", (f"update {COMPARED} set standard_error = "
        "standard_error / 10")),
    "percentiles of bins lowered": (BINS, "percentiles_agree", f"update {BINS} set {LOWEST_PLACES}"),
    "percentiles of bins all the highest": (BINS, "percentiles_agree", f"update {BINS} set {HIGH_PLACES}"),
    "the overall median lowered": (BINS, "percentiles_add_up", (f"update {METRICS} set value = value / 2 where metric "
        "= 'median_rank'")),
    "coverage halved": (BEYOND, "coverage_counted", (f"update {BEYOND} set value = value / 2 where starts_with(metric, "
                                                    "'coverage')")),
    "coverage lowered by a third": (BEYOND, "coverage_counted", (f"update {BEYOND} set value = value / 3 where "
        "starts_with(metric, 'coverage')")),
    "Gini indices halved": (BEYOND, "coverage_counted", (f"update {BEYOND} set value = value / 3 where "
                                                        "starts_with(metric, 'gini')")),
    "like_sd zero": (LISTS, "like_sd_possible", f"update {LISTS} set like_sd = 0"),
    "like_mean and like_sd exchanged": (LISTS, "like_sd_possible", SWAPPED.format(LISTS, "like_mean", "like_sd")),
    "minus the rank for a score": (LISTS, "scores_measured", f"update {LISTS} set score = -rank"),
    "one digest for all fits": (FITS, "digest_of_one_model", (f"update {FITS} set digest = (select min(digest) from "
        f"{FITS})")),
    "fits without a digest": (FITS, "digest_formed", f"update {FITS} set digest = 'none'"),
    "a new log that had events": (ARRIVALS, "counts_of_outcome", f"update {ARRIVALS} set events_before = 5"),
    "an arrival's counts": (ARRIVALS, "read_in", f"update {ARRIVALS} set events = events - 1, rejects = rejects + 1"),
}  # fmt: skip


# The same on a log that is filtered, with the published split
FILTERED_MUTATIONS = {
    "an edge deleted": (GRAPH, "events_folded", f"delete from indexed.interactions where {EDGE}"),
    "an edge invented": (GRAPH, "events_folded", INVENTED),
    "a false event count": (GRAPH, "events_folded", f"update indexed.interactions set event_count = 2 where {EDGE}"),
    "a user of the core lost": (GRAPH, "active_stay", f"delete from indexed.users where user_index = {BUSY}"),
    "an item that was filtered out": (GRAPH, "active_stay", """insert into indexed.items
        select (select count(*) from indexed.items), item_id from raw.events
        where item_id not in (select item_id from indexed.items)
            and value >= 4 and occurred_at between '2002-01-01' and '2004-12-31' limit 1"""),
    "targets turned to fold-in": MUTATIONS["targets turned to fold-in"],
    "fold-in turned to targets": MUTATIONS["fold-in turned to targets"],
    "validation relabelled test": (STRONG, "parts_sized", MUTATIONS["validation relabelled test"][2]),
    "a validation user relabelled": (STRONG, "parts_sized", (f"update {STRONG} set part = 'test' where user_index = "
        f"(select min(user_index) from {STRONG} where part = 'validation')")),
    "a validation and a test user exchanged": (
        STRONG, "drawn_as_published", f"""update {STRONG} set part = if(part = 'test', 'validation', 'test')
        where user_index in (select min(user_index) from {STRONG} where part <> 'train' group by part)"""),
    "a training and a test user exchanged": (STRONG, "drawn_as_published", f"""update {STRONG}
        set part = if(part = 'test', 'train', 'test'), role = if(part = 'test', 'fit', 'fold_in')
        where user_index in (select min(user_index) from {STRONG} where part <> 'validation' group by part)"""),
    "targets and fold-in reversed": (STRONG, "drawn_as_published", MUTATIONS["targets and fold-in reversed"][2]),
    "a split emptied": MUTATIONS["a split emptied"],
    "a user that the split's filter drops": (STRONG, "everybody_there", f"""insert into {STRONG}
        select user_index, item_index, 'train', 'fit' from indexed.interactions
        where user_index not in (select user_index from {STRONG}) limit 1"""),
}  # fmt: skip


GIVEN = "indexed.given"
ONE_EDGE = f"rowid = (select min(rowid) from {GIVEN} where role = '{{0}}')"
# The same with a split that comes with the log
GIVEN_MUTATIONS = {
    "an edge deleted": f"delete from {GIVEN} where {ONE_EDGE.format('train')}",
    "an edge twice": f"insert into {GIVEN} from {GIVEN} where {ONE_EDGE.format('test')}",
    "an edge in both roles": f"insert into {GIVEN} select user_index, item_index, 'test' from {GIVEN} where "
                             f"{ONE_EDGE.format('train')}",
    "an edge invented": f"""insert into {GIVEN} select users.user_index, items.item_index, 'test'
        from (select distinct user_index from {GIVEN}) as users, (select distinct item_index from {GIVEN}) as items
        where (users.user_index, items.item_index) not in (select (user_index, item_index) from {GIVEN}) limit 1""",
    "a test edge for training": f"update {GIVEN} set role = 'train' where {ONE_EDGE.format('test')}",
    "a training edge for the test": f"update {GIVEN} set role = 'test' where {ONE_EDGE.format('train')}",
    "the files exchanged": f"update {GIVEN} set role = if(role = 'test', 'train', 'test')",
    "the split emptied": f"delete from {GIVEN}",
}  # fmt: skip


# The same with weights that add up
WEIGHTED_MUTATIONS = {
    "a false weight": (GRAPH, "events_folded", f"update {GRAPH} set weight = weight + 0.001 where {EDGE}"),
    "weights lost": (GRAPH, "events_folded", f"update {GRAPH} set weight = null"),
    "counts for weights": (GRAPH, "events_folded", f"update {GRAPH} set weight = event_count"),
    "likes before the threshold": (GRAPH, "events_folded", f"update {GRAPH} set first_at = first_at - interval 1 day"),
    "an edge invented": (GRAPH, "events_folded", INVENTED.replace("null\n", "2.5\n")),
    "an event's kind changed": (GRAPH, "events_folded", """update raw.events set event = 'cart' where rowid =
        (select min(rowid) from raw.events where event = 'purchase')"""),
    "returns lost": (GRAPH, "events_folded", "delete from raw.events where event = 'return'"),
    "a kind that nobody declared": ("raw.events", "kind_known", "update raw.events set event = 'gift' where rowid = 3"),
    "a dislike lost": ("indexed.observed_negatives", "events_folded", ("delete from indexed.observed_negatives "
        "where rowid = 3")),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", WEIGHTED_MUTATIONS)
def test_a_corruption_of_weights_is_caught(weighted, name):
    table, rule, mutation = WEIGHTED_MUTATIONS[name]
    result = weighted.broken(table, mutation)[rule]
    assert result.samples and "could not be checked" not in result.observed


@pytest.mark.parametrize(
    "made",
    ["whole", *(pytest.param(made, marks=pytest.mark.slow) for made in ("filtered", "in_two_files", "weighted"))],
)
def test_what_the_stages_make_keeps_every_contract(made, request):
    made = request.getfixturevalue(made)
    assert {"ingest", "binarize"} <= set(made.values)
    for contract in load():
        if contract.stage in made.values and "." in contract.table:
            assert made.broken(contract.table) == {}, contract.table


@pytest.mark.slow
@pytest.mark.parametrize(
    ("made", "name", "case"),
    [
        *(("whole", name, case) for name, case in (MUTATIONS | FALSE_STATISTICS).items()),
        *(("filtered", name, case) for name, case in FILTERED_MUTATIONS.items()),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_corruption_is_caught(made, name, case, request):
    table, rule, mutation = case
    result = request.getfixturevalue(made).broken(table, mutation)[rule]
    assert result.samples and "could not be checked" not in result.observed


@pytest.mark.slow
@pytest.mark.parametrize("name", GIVEN_MUTATIONS)
def test_a_corruption_of_a_given_split_is_caught(in_two_files, name):
    result = in_two_files.broken(GIVEN, GIVEN_MUTATIONS[name])["edges_agree"]
    assert result.samples and "could not be checked" not in result.observed
