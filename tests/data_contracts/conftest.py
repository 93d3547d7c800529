"""A small warehouse in which every contract holds, inside the open transaction of a stage."""

import shutil

import duckdb
import pytest

from oneclass import sql

GOOD_ROWS = """
insert into operations.log_files values
    (1, 'a.csv', 'd1', 10, 15, 1, timestamp '2026-01-02', 'c1'),
    (2, 'b.csv', 'd2', 10, 2, 0, timestamp '2026-01-02', null);
insert into operations.arrivals values
    ('ml-1m 10:02:03', timestamp '2026-01-02', 'a.csv', 'a.csv', 'changed', 1, 'd1', 15, 1, 12, 0, null),
    ('ml-1m 10:02:03', timestamp '2026-01-02', 'b.csv', 'b.csv', 'new', 2, 'd2', 2, 0, 0, 0, null),
    ('ml-1m 10:02:03', timestamp '2026-01-02', 'c.csv', 'c.csv', 'set aside', null, null, 0, 0, 0, 0, 'is empty'),
    ('before', timestamp '2026-01-01', 'a.csv', 'a.csv', 'new', 1, 'd0', 12, 0, 0, 0, null);
insert into raw.events values
    ('u1', 'i1', 5, null, 1, 1, null), ('u1', 'i2', 5, null, 1, 2, null), ('u1', 'i3', 1, null, 1, 4, null),
    ('u2', 'i1', 4, null, 1, 5, null), ('u2', 'i2', 4, null, 1, 6, null), ('u3', 'i1', 5, null, 1, 7, null),
    ('u3', 'i3', 5, null, 2, 1, null), ('u3', 'i2', 5, null, 2, 2, null);
insert into raw.events
    select 'u' || u, 'i' || i, 5, null, 1, 10 * u + i, null from range(1, 4) as users(u), range(4, 7) as items(i);
insert into raw.places values (2, 1, 1, 'i3'), (2, 2, 1, 'i2');
insert into raw.rejects values (1, 3, 'u1,i9', 'too few columns');
insert into raw.attributes values
    ('item', 'i1', 'genre', 'a'), ('item', 'i2', 'genre', null), ('item', 'i1', 'stock', '3'),
    ('item', 'i2', 'stock', '0'), ('user', 'u1', 'age', '30');
insert into operations.attribute_tables values
    ('item', 'items.csv', 'a0', 1, ['genre'], ['category'], '|', 0.5, 'another', false),
    ('item', 'items.csv', 'a1', 3, ['genre', 'stock'], ['category', 'bigint'], '|', 0.5, 'ml-1m 10:02:03', true),
    ('user', 'users.csv', 'a2', 1, ['age'], ['number'], '|', 0.5, 'ml-1m 10:02:03', true);
insert into operations.funnel values
    ('ml-1m 10:02:03', 0, 'lines', 'lines', 0, 18, null, null),
    ('ml-1m 10:02:03', 1, 'lines', 'too few columns', 1, 17, null, null),
    ('ml-1m 10:02:03', 2, 'events', 'value below 4', 1, 16, null, null),
    ('ml-1m 10:02:03', 3, 'likes', 'repeats', 0, 16, 3, 6),
    ('another', 1, 'likes', 'repeats', 9, 7, 1, 1);
insert into indexed.users select u - 1, 'u' || u from range(1, 4) as users(u);
insert into indexed.items select i - 1, 'i' || i from range(1, 7) as items(i);
insert into raw.attributes values ('item', 'n1', 'genre', 'a'), ('item', 'n1', 'stock', '1');
insert into indexed.new_items values (6, 'n1');
insert into indexed.interactions values
    (0, 0, 1, null, null, 1, 1, null), (0, 1, 1, null, null, 1, 2, null),
    (1, 0, 1, null, null, 1, 5, null), (1, 1, 1, null, null, 1, 6, null),
    (2, 0, 1, null, null, 1, 7, null), (2, 2, 1, null, null, 2, 1, null), (2, 1, 1, null, null, 2, 2, null);
insert into indexed.interactions
    select u - 1, i - 1, 1, null, null, 1, 10 * u + i, null from range(1, 4) as users(u), range(4, 7) as items(i);
insert into indexed.observed_negatives values (0, 2, null, null);
insert into indexed.strong_generalization values
    (0, 0, 'train', 'fit'), (0, 1, 'train', 'fit'),
    (1, 0, 'validation', 'fold_in'), (1, 1, 'validation', 'target'),
    (2, 0, 'test', 'fold_in'), (2, 1, 'test', 'target'), (2, 2, 'test', 'dropped');
insert into indexed.strong_generalization
    select u - 1, i - 1, ['train', 'validation', 'test'][u], ['fit', 'fold_in', 'fold_in'][u]
    from range(1, 4) as users(u), range(4, 7) as items(i);
insert into indexed.leave_one_out
    select user_index, item_index, if(item_index = 0, 'held_out', 'train') from indexed.interactions;
insert into indexed.cold_items
    select user_index, item_index, if((user_index, item_index) = (1, 3), 'held_out', 'train') from indexed.interactions;
insert into indexed.next_events select user_index, item_index, 'dropped' from indexed.interactions;  -- none has a time
insert into indexed.given
    select user_index, item_index, if(first_file_id = 2, 'test', 'train') from indexed.interactions;
insert into diagnostics.degrees values ('user', 5, 2), ('user', 6, 1), ('item', 3, 5), ('item', 1, 1);
insert into diagnostics.leakage values ('given', 2, 9, 4, 3.5, 1.5), ('next_events', 2, 9, 4, 0, 0);
insert into diagnostics.list_hits values
    ('night 1', timestamp '2026-01-01 03:00', 20, 3, 5, 2, 0.4, 0.1, 0.3, 0.1, 0.2, 0.1, 0.05),
    ('night 2', timestamp '2026-01-02 03:00', 20, 1, 1, 0, 0, 0, 0, 0, 1, 1, 0);
insert into diagnostics.power_law_fits
    select side, family, 1.4, null, d_min, d_max, log_likelihood, 2 * parameters - 2 * log_likelihood, ks, p_value
    from (values ('user', 5, 6, 0.5), ('item', 1, 3, null)) as sides (side, d_min, d_max, p_value)
    cross join (values
        ('power_law', 1, -1.9761826578299346, 0.10319834232994107), ('exponential', 1, -2.0794415416798357, 1 / 6),
        ('power_law_cutoff', 2, -1.9761826578299346, 0.10319834232994107), ('log_normal', 2, -5, 0.2)
    ) as families (family, parameters, log_likelihood, ks);
insert into operations.model_settings values
    ('ml-1m 10:02:03', 'wmf', 'search', 'regularization .01', 'leave_one_out', date '2026-01-02', 'mean_rank', 12, 3.5,
     0.8, 0.9, 0.01, 3, 6, 14, 'abc', '{"regularization": 0.01}'),
    ('ml-1m 10:02:03', 'slim', 'default', 'off', null, null, null, null, null, null, null, null, null, null, null, null,
    '{}'),
    ('another', 'wmf', 'elsewhere', '', null, null, null, 0, -1, 9, 8, null, null, null, null, null, '{}');
insert into operations.model_fits values
    ('ml-1m 10:02:03', 'leave_one_out', 'popularity', 'abc', 0.1, 100, 100),
    ('another', 'leave_one_out', 'popularity', 'abc', -1, 100, 0);
insert into operations.promotions values
    ('ml-1m 10:02:03', timestamp '2026-01-02', 'slim/score', 'wmf/score', 'validation_ndcg@100', 0.1, 0.02, 1, true,
     'ndcg@100 +0.1000 ± 0.0200 against slim/score, over the same validation users');
insert into operations.nights
    select 'ml-1m 10:02:03', date '2026-01-02', figure, value, in_ratio, usual, spread, 14
    from (values
        ('delivered', 1, false, 1, 0), ('reject_share', 0, false, null, null),
        ('events', 1900, true, 2000, 0.1), ('new_user_share', 0.1, false, 0.1, 0.01),
        ('value_level', 0.5, false, 0.5, 0.01), ('hours_moved', 0.2, false, 0.1, 0.05), ('item_overlap', 0.9, false,
        0.9, 0.01),
        ('heaviest_user_share', 0.01, true, 0.01, 0.1), ('hours_old', 3, false, null, null),
        ('clock_shift', -0.1, false, 0.1, 0.2), ('missing_user_share', 0.02, false, 0.01, 0.01)
    ) as figures (figure, value, in_ratio, usual, spread)
    union all
    select 'another', date '2026-01-01', 'events', 9, true, 2000, 0.1, 14;
insert into diagnostics.nightly_exponents values
    ('ml-1m 10:02:03', date '2026-01-02', 'user_exponent', 1.52, false, 1.5, 0.001, 14),
    ('ml-1m 10:02:03', date '2026-01-02', 'item_exponent', 1.5, false, null, null, 3),
    ('another', date '2026-01-01', 'user_exponent', 9, false, 1.5, 0.001, 14);
insert into evaluation.metrics values
    ('ml-1m 10:02:03', 'leave_one_out', 'popularity', 'score', 'mean_rank', 0.8, 0.01, 3),
    ('ml-1m 10:02:03', 'leave_one_out', 'random_graph', 'like', 'mean_rank', 0.6, 0.01, 3),
    ('ml-1m 10:02:03', 'leave_one_out', 'random_graph', 'popularity_x_like', 'mean_rank', 0.9, null, 3),
    ('another', 'leave_one_out', 'popularity', 'score', 'mean_rank', 8, 0.01, 3);
insert into evaluation.comparisons values
    ('ml-1m 10:02:03', 'leave_one_out', 'mean_rank', 'popularity', 'score', 'random_graph',
     'like', 0.2, 0.01, 0.1, 3, 0.2),
    ('ml-1m 10:02:03', 'leave_one_out', 'mean_rank', 'popularity', 'score', 'random_graph',
     'popularity_x_like', -0.1, 0.01, 0.2, 3, 0.2),
    ('ml-1m 10:02:03', 'leave_one_out', 'mean_rank', 'random_graph', 'like', 'random_graph',
     'popularity_x_like', -0.3, null, null, 3, null);
insert into evaluation.ranks_by_degree values
    ('ml-1m 10:02:03', 'popularity', 'score', 'user', 1, 1, 2, 0.8, 0.1, 0.2, 0.5, 0.6, 1),
    ('ml-1m 10:02:03', 'popularity', 'score', 'user', 2, 3, 1, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8);
insert into evaluation.ranks_by_degree values
    ('ml-1m 10:02:03', 'random_graph', 'like', 'user', 1, 1, 2, 0.5, 0.1, 0.2, 0.5, 0.6, 1),
    ('ml-1m 10:02:03', 'random_graph', 'like', 'user', 2, 3, 1, 0.8, 0.8, 0.8, 0.8, 0.8, 0.8),
    ('ml-1m 10:02:03', 'random_graph', 'like', 'item', 2, 3, 3, 0.6, 0.1, 0.2, 0.5, 0.6, 1),
    ('ml-1m 10:02:03', 'popularity', 'score', 'item', 2, 3, 3, 0.8, 0.1, 0.2, 0.5, 0.6, 1);
insert into evaluation.ranks_by_degree values
    ('ml-1m 10:02:03', 'random_graph', 'popularity_x_like', 'user', 1, 3, 3, 0.9, 0.1, 0.2, 0.5, 0.6, 1),
    ('ml-1m 10:02:03', 'random_graph', 'popularity_x_like', 'item', 2, 3, 3, 0.9, 0.1, 0.2, 0.5, 0.6, 1);
insert into evaluation.ranks_by_both_degrees values
    ('ml-1m 10:02:03', 'random_graph', 'like', 1, 1, 2, 3, 2, 0.5),
    ('ml-1m 10:02:03', 'random_graph', 'like', 2, 3, 2, 3, 1, 0.8),
    ('ml-1m 10:02:03', 'popularity', 'score', 1, 1, 2, 3, 2, 0.8),
    ('ml-1m 10:02:03', 'popularity', 'score', 2, 3, 2, 3, 1, 0.8),
    ('ml-1m 10:02:03', 'random_graph', 'popularity_x_like', 1, 3, 2, 3, 3, 0.9),
    ('another', 'popularity', 'score', 2, 3, 2, 3, 1, 9);
insert into evaluation.like_by_degree values
    ('ml-1m 10:02:03', 'random_graph', 1, 1, 2, 0.5, [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
    ('ml-1m 10:02:03', 'random_graph', 2, 2, 1, 0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
    ('another', 'random_graph', 2, 2, 9, 0, [1]);
insert into evaluation.dislike_by_degree values
    ('ml-1m 10:02:03', 'random_graph', 1, 1, 2, 0.5, [0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0]),
    ('ml-1m 10:02:03', 'random_graph', 2, 2, 1, 0, [1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
    ('another', 'random_graph', 2, 2, 9, 0, [1]);
insert into evaluation.calibration values
    ('ml-1m 10:02:03', 'random_graph', 'sampled_negatives', 0.4, 0.5, 1, 0.45, 1, null),
    ('ml-1m 10:02:03', 'random_graph', 'sampled_negatives', 0.9, 1, 5, 0.95, 0.4, 0.22),
    ('ml-1m 10:02:03', 'random_graph', 'coin', 0.9, 1, 2, 0.95, 0.9, 0.01);
insert into evaluation.considered values
    ('ml-1m 10:02:03', 'leave_one_out', 'random_graph', 'considered_auc', 0.7, 0.01, 2, 3),
    ('ml-1m 10:02:03', 'leave_one_out', 'random_graph', 'considered_log_loss', 1.1, 0.01, 2, 3),
    ('ml-1m 10:02:03', 'leave_one_out', 'popularity', 'considered_calibration_error', 0.1, null, 2, 3),
    ('another', 'leave_one_out', 'random_graph', 'considered_auc', 7, 0.01, 9, 9);
insert into evaluation.calibration values ('ml-1m 10:02:03', 'random_graph', 'considered', 0.9, 1, 5, 0.95, 0.4,
sqrt(0.24 / 5));
insert into evaluation.beyond_accuracy values
    ('ml-1m 10:02:03', 'leave_one_out', 'popularity', 'score', 'coverage@20', 0.2, null, 3),
    ('ml-1m 10:02:03', 'leave_one_out', 'popularity', 'score', 'popularity_lift@20', 2.5, 0.1, 2),
    ('ml-1m 10:02:03', 'leave_one_out', 'random_graph', 'like', 'coverage@20', 0.6, null, 3),
    ('ml-1m 10:02:03', 'leave_one_out', 'random_graph', 'like', 'novelty@20', 3.5, 0.2, 3);
insert into evaluation.strata
    select
        'ml-1m 10:02:03', 'leave_one_out', model, score, 'mean_rank', strata, stratum, least, most, value, null, users,
        users
    from (
        values ('popularity', 'score', 0.8), ('random_graph', 'like', 0.6), ('random_graph', 'popularity_x_like', 0.9)
    ) as lists (model, score, value)
    cross join (values
        ('activity', 'low', 4, 4, 2), ('activity', 'high', 5, 5, 1), ('popularity', 'middle', 2, 2, 3)
    ) as strata (strata, stratum, least, most, users);
insert into evaluation.strata values
    ('another', 'x', 'popularity', 'score', 'mean_rank', 'activity', 'low', 2, 1, 7, -1, 0, 0);
insert into diagnostics.hidden_graph_ratios values
    (1, 0, 3, 0), (1, 1, 3, 0), (1, 2, 1, 2), (0.5, 0, 3, 0), (0.5, 1, 3, 0), (0.5, 2, 1, 2);
insert into diagnostics.hidden_graph_ratios
    select r, item, 3, 0 from (values (1), (0.5)) as rates (r), range(3, 6) as items(item);
insert into published.recommendations values
    ('u1', 'i3', 1, 0.5, 0.4, 0.1, false, ['i1', 'i2'], 0.6, 0.2),
    ('u2', 'i3', 1, 0.5, 0.3, 0.1, false, ['i2'], null, null);
insert into published.lists values
    ('popular', null, null, 1, 'i1', 3, 3, null, null), ('popular', null, null, 2, 'i2', 3, 3, null, null),
    ('popular', null, null, 3, 'i4', 3, 3, null, null), ('popular', 'a', null, 1, 'i1', 3, 3, null, null);
insert into published.placements select 'home', * from published.recommendations;
insert into published.exploration
    select '2026-01-31/' || user_id, user_id, 'thompson', item_id, rank, score, 0.3, like_mean, like_sd
    from published.recommendations;
"""

FITTED_ARRAYS = """
create temp table rule_breaches (rule varchar, placement varchar, user_id varchar, item_id varchar, rank integer);
create temp table fitted_arrays
    (protocol varchar, model varchar, "array" varchar, entries bigint, not_finite bigint);
insert into fitted_arrays values ('leave_one_out', 'popularity', 'counts', 3, 0);
"""  # which each connection has for itself


@pytest.fixture
def parameters():
    """What the stages would give."""
    return {
        "run_id": "ml-1m 10:02:03",
        "value_min": 1.0,
        "value_max": 5.0,
        "max_reject_share": 0.25,
        "fresh_within_hours": 24.0,
        "threshold": 4.0,
        "since": None,
        "until": None,
        "min_user_edges": 0,
        "min_item_edges": 0,
        "k_core": 0,
        "explicit_negatives": True,
        "scheme": "hashed",
        "seed": 251955,  # one whose hashes make the parts, targets and held-out edges below
        "held_out_share": 0.3,
        "held_out_users": None,
        "max_evaluated_users": 50_000,
        "strong_generalization": True,
        "leave_one_out": True,
        "cold_items": True,
        "next_events": True,
        "next_from": "2026-01-01",
        "given": True,
        "train_files": "1",
        "test_files": "2",
        "top_n": 20,
        "list_length": 3,
        "likes_given": True,
    }


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    """A warehouse with its tables and no rows."""
    path = tmp_path_factory.mktemp("contracts") / "warehouse.duckdb"
    with duckdb.connect(str(path), config={"threads": 1}) as connection:
        for statement in sql.schema():
            connection.execute(statement)
    return path


@pytest.fixture(scope="session")
def filled(file):
    """An open warehouse with the rows that keep every contract, for tests that change it and roll back."""
    path = shutil.copy(file, file.with_name("filled.duckdb"))
    with duckdb.connect(str(path), config={"threads": 1}) as connection:
        connection.execute(GOOD_ROWS)
        yield connection


@pytest.fixture
def empty(file):
    """A connection inside an open transaction, all tables empty; rolled back afterwards."""
    with duckdb.connect(str(file), config={"threads": 1}) as connection:
        connection.begin()
        yield connection
        connection.rollback()


@pytest.fixture
def good(filled):
    """A connection inside an open transaction, with rows that keep every contract; rolled back afterwards."""
    with filled.cursor() as connection:
        connection.begin()
        connection.execute(FITTED_ARRAYS)
        yield connection
        connection.rollback()
