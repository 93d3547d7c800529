"""Every rule holds on good rows, and is broken by a bad one."""

import pytest

from oneclass.data_contracts import check
from oneclass.data_contracts.checks import check_contracts
from oneclass.data_contracts.contracts import STAGES, load

RUN = "'ml-1m 10:02:03'"
METRIC = f"insert into evaluation.metrics values ({RUN}, 'given', 'm', 's',"
COMPARED = f"insert into evaluation.comparisons values ({RUN}, 'given', 'm', 'a', 's',"
BIN = f"insert into evaluation.ranks_by_degree values ({RUN}, 'm', 's',"
CELL = f"insert into evaluation.ranks_by_both_degrees values ({RUN}, 'random_graph', 'like',"
LIKE = "update evaluation.like_by_degree set"
DISLIKE = "update evaluation.dislike_by_degree set"
TENTH = f"insert into evaluation.calibration values ({RUN}, 'random_graph',"
LISTS = f"insert into evaluation.beyond_accuracy values ({RUN}, 'leave_one_out', 'random_graph', 'like',"
SWEPT = "update evaluation.sweeps set"
RATIOS = "update diagnostics.hidden_graph_ratios set"
NIGHT = "update operations.nights set value ="
SETTLED = "update operations.model_settings set "
FIT = f"insert into operations.model_fits values ({RUN}, 'given',"
LAW = "insert into diagnostics.power_law_fits values ('user', 'x', null, null,"

# table, rule, and the change of the good rows that breaks it
BREACHES = [
    ("raw.events", "user_named", "insert into raw.events values ('', 'i1', 5, null, 1, 9)"),
    ("raw.events", "item_named", "insert into raw.events values ('u1', '', 5, null, 1, 9)"),
    ("raw.events", "value_finite", "update raw.events set value = 'nan' where line_number = 1"),
    ("raw.events", "value_in_range", "update raw.events set value = 5.5 where line_number = 1"),
    ("raw.events", "value_in_range", "update raw.events set value = 0.5 where line_number = 1"),
    ("raw.events", "file_known", "insert into raw.events values ('u1', 'i1', 5, null, 3, 1)"),
    ("raw.events", "columns", "alter table raw.events drop column occurred_at"),
    ("raw.events", "columns", "alter table raw.events add column device varchar"),
    ("raw.events", "columns", "alter table raw.events alter value type float"),
    ("raw.events", "columns", "alter table raw.events alter value drop not null"),
    ("raw.places", "places_counted", "update raw.places set place = 2 where line_number = 1"),
    ("raw.places", "events_agree", "update raw.places set item_id = 'i1' where line_number = 1"),
    ("raw.places", "events_agree", "delete from raw.places where line_number = 1"),
    ("raw.rejects", "file_known", "insert into raw.rejects values (3, 1, null, 'x')"),
    ("raw.rejects", "share_of_rejects", "update operations.log_files set rejects = 9 where file_id = 2"),
    ("operations.log_files", "file_id_unique", "update operations.log_files set file_id = 1"),
    ("operations.log_files", "sha256_unique", "update operations.log_files set sha256 = 'd1'"),
    ("operations.log_files", "events_counted", "delete from raw.events where file_id = 2"),
    ("operations.log_files", "rejects_counted", "delete from raw.rejects"),
    (
        "operations.arrivals",
        "outcome_known",
        "update operations.arrivals set outcome = 'old' where outcome = 'changed'",
    ),
    ("operations.arrivals", "set_aside_says_why", "update operations.arrivals set reason = null"),
    ("operations.arrivals", "set_aside_says_why", "update operations.arrivals set reason = 'x'"),
    ("operations.arrivals", "read_in", "update operations.arrivals set events = events + 1 where file_id = 2"),
    ("operations.arrivals", "read_in", "update operations.arrivals set sha256 = 'd0' where outcome = 'changed'"),
    (
        "operations.nights",
        "figure_once",
        f"insert into operations.nights from operations.nights where figure = 'events' and run_id = {RUN}",
    ),
    ("operations.nights", "batch_not_empty", f"{NIGHT} 0 where figure = 'delivered'"),
    ("operations.nights", "newest_event_fresh", f"{NIGHT} 24.1 where figure = 'hours_old'"),
    ("operations.nights", "volume_usual", f"{NIGHT} 2000 * exp(-0.51) where figure = 'events'"),
    ("operations.nights", "volume_usual", f"{NIGHT} 2000 * exp(0.51) where figure = 'events'"),
    ("operations.nights", "newcomers_usual", f"{NIGHT} 0.151 where figure = 'new_user_share'"),
    ("operations.nights", "values_usual", f"{NIGHT} 0.551 where figure = 'value_level'"),
    ("operations.nights", "times_usual", f"{NIGHT} 0.351 where figure = 'hours_moved'"),
    ("operations.nights", "times_usual", f"{NIGHT} -0.71 where figure = 'clock_shift'"),
    ("operations.nights", "times_usual", f"{NIGHT} 0.91 where figure = 'clock_shift'"),
    ("operations.nights", "returning_users_usual", f"{NIGHT} 0.059 where figure = 'missing_user_share'"),
    ("operations.nights", "items_usual", f"{NIGHT} 0.824 where figure = 'item_overlap'"),
    ("operations.nights", "heavy_hitters_usual", f"{NIGHT} 0.0166 where figure = 'heaviest_user_share'"),
    ("operations.nights", "hard_limits", f"{NIGHT} 0.95 where figure = 'new_user_share'"),
    (
        "diagnostics.nightly_exponents",
        "figure_once",
        "insert into diagnostics.nightly_exponents from diagnostics.nightly_exponents",
    ),
    (
        "diagnostics.nightly_exponents",
        "exponents_usual",
        "update diagnostics.nightly_exponents set value = 1.551 where usual is not null",
    ),
    (
        "operations.promotions",
        "decided_once",
        "insert into operations.promotions from operations.promotions",
    ),
    ("operations.promotions", "difference_finite", "update operations.promotions set difference = 'nan'"),
    ("operations.promotions", "standard_error_in_range", "update operations.promotions set standard_error = -1"),
    ("operations.promotions", "margin_in_range", "update operations.promotions set margin = 'inf'"),
    ("operations.promotions", "compared_by_something", "update operations.promotions set champion = null"),
    ("operations.promotions", "decision_follows", "update operations.promotions set promoted = false"),
    ("operations.promotions", "decision_follows", "update operations.promotions set difference = -difference"),
    ("operations.promotions", "decision_follows", "update operations.promotions set promoted = false, champion = null"),
    (
        "operations.arrivals",
        "counts_of_outcome",
        "update operations.arrivals set events_before = 3 where outcome = 'new'",
    ),
    (
        "operations.arrivals",
        "counts_of_outcome",
        "update operations.arrivals set events = 3 where outcome = 'set aside'",
    ),
    (
        "operations.arrivals",
        "counts_before",
        "update operations.arrivals set events_before = 9 where outcome = 'changed'",
    ),
    (
        "operations.arrivals",
        "counts_before",
        "update operations.arrivals set rejects_before = 1 where outcome = 'changed'",
    ),
    ("operations.promotions", "reason_given", "update operations.promotions set reason = ' '"),
    ("indexed.interactions", "not_empty", "delete from indexed.interactions"),
    (
        "indexed.interactions",
        "edge_once",
        "insert into indexed.interactions from indexed.interactions limit 1",
    ),
    ("indexed.users", "index_once", "update indexed.users set user_index = 1 where user_index = 0"),
    ("indexed.users", "id_once", "update indexed.users set user_id = 'u1' where user_index = 1"),
    ("indexed.users", "indices_dense", "update indexed.users set user_index = 3 where user_index = 2"),
    ("indexed.users", "with_an_edge", "insert into indexed.users values (3, 'u4')"),
    ("indexed.users", "with_an_edge", "delete from indexed.users where user_index = 2"),
    ("indexed.users", "with_an_edge", "delete from indexed.interactions where user_index = 0"),
    ("indexed.items", "index_once", "update indexed.items set item_index = 1 where item_index = 0"),
    ("indexed.items", "id_once", "update indexed.items set item_id = 'i1' where item_index = 1"),
    ("indexed.items", "indices_dense", "update indexed.items set item_index = item_index + 1"),
    ("indexed.items", "with_an_edge", "insert into indexed.items values (6, 'i9')"),
    ("indexed.items", "with_an_edge", "delete from indexed.items where item_index = 5"),
    (
        "indexed.interactions",
        "event_count_positive",
        "update indexed.interactions set event_count = 0 where user_index = 0",
    ),
    (
        "indexed.interactions",
        "times_in_order",
        "update indexed.interactions set first_at = timestamp '2026-01-02', last_at = timestamp '2026-01-01'",
    ),
    (
        "indexed.interactions",
        "times_in_order",
        "update indexed.interactions set first_at = timestamp '2026-01-02'",
    ),
    (
        "indexed.interactions",
        "events_folded",
        "update indexed.interactions set event_count = 2 where user_index = 0 and item_index = 0",
    ),
    ("indexed.interactions", "everybody_there", "delete from indexed.items where item_index = 2"),
    ("indexed.interactions", "active_stay", "delete from indexed.users where user_index = 1"),
    ("indexed.interactions", "file_known", "update indexed.interactions set first_file_id = 7"),
    (
        "indexed.strong_generalization",
        "role_of_part",
        "update indexed.strong_generalization set role = 'fit' where user_index = 1",
    ),
    (
        "indexed.strong_generalization",
        "role_of_part",
        "update indexed.strong_generalization set role = 'fold_in' where user_index = 0",
    ),
    (
        "indexed.strong_generalization",
        "user_in_one_part",
        "update indexed.strong_generalization set part = 'train', role = 'fit' where item_index = 0",
    ),
    (
        "indexed.strong_generalization",
        "edges_agree",
        "insert into indexed.strong_generalization values (1, 1, 'validation', 'fold_in')",
    ),
    (
        "indexed.strong_generalization",
        "edges_agree",
        "insert into indexed.strong_generalization values (1, 2, 'validation', 'dropped')",
    ),
    (
        "indexed.strong_generalization",
        "edges_agree",
        "delete from indexed.strong_generalization where role = 'target'",
    ),
    (
        "indexed.strong_generalization",
        "everybody_there",
        "delete from indexed.strong_generalization where user_index = 1",
    ),
    (
        "indexed.strong_generalization",
        "everybody_there",
        "delete from indexed.strong_generalization where item_index = 2",
    ),
    (
        "indexed.strong_generalization",
        "items_of_training",
        "update indexed.strong_generalization set role = 'target' where item_index = 2",
    ),
    (
        "indexed.strong_generalization",
        "items_of_training",
        "update indexed.strong_generalization set role = 'dropped' where role = 'target'",
    ),
    (
        "indexed.strong_generalization",
        "part_by_hash",
        "update indexed.strong_generalization set part = 'test' where part = 'validation'",
    ),
    (
        "indexed.strong_generalization",
        "parts_sized",
        "update indexed.strong_generalization set part = 'test' where part = 'validation'",
    ),
    (
        "indexed.strong_generalization",
        "a_fifth_is_target",
        "update indexed.strong_generalization set role = 'target' where role = 'fold_in'",
    ),
    (
        "indexed.strong_generalization",
        "targets_by_hash",
        "update indexed.strong_generalization set role = if(role = 'target', 'fold_in', 'target') where user_index = 1",
    ),
    (
        "indexed.leave_one_out",
        "held_out_by_hash",
        "update indexed.leave_one_out set role = if(item_index = 1, 'held_out', 'train') where user_index = 0",
    ),
    (
        "indexed.leave_one_out",
        "one_held_out",
        "update indexed.leave_one_out set role = 'train' where user_index = 0",
    ),
    (
        "indexed.leave_one_out",
        "one_held_out",
        "update indexed.leave_one_out set role = 'held_out' where user_index = 0",
    ),
    (
        "indexed.leave_one_out",
        "edges_agree",
        "insert into indexed.leave_one_out values (0, 0, 'train')",
    ),
    (
        "indexed.leave_one_out",
        "edges_agree",
        "insert into indexed.leave_one_out values (0, 8, 'train')",
    ),
    (
        "indexed.leave_one_out",
        "edges_agree",
        "update indexed.leave_one_out set item_index = 8 where item_index = 2",
    ),
    ("indexed.leave_one_out", "edges_agree", "delete from indexed.leave_one_out where item_index = 1"),
    ("indexed.leave_one_out", "edges_agree", "delete from indexed.leave_one_out where user_index = 1"),
    (
        "indexed.observed_negatives",
        "pair_once",
        "insert into indexed.observed_negatives from indexed.observed_negatives",
    ),
    ("indexed.observed_negatives", "not_liked", "insert into indexed.observed_negatives values (0, 0, null)"),
    ("indexed.observed_negatives", "only_where_asked", "select 1"),
    ("indexed.observed_negatives", "events_folded", "delete from indexed.observed_negatives"),
    ("indexed.observed_negatives", "events_folded", "update indexed.observed_negatives set user_index = 1"),
    ("indexed.observed_negatives", "events_folded", "delete from raw.events where value = 1"),
    ("evaluation.dislike_by_degree", "error_in_range", f"{DISLIKE} error = 1.5"),
    ("evaluation.dislike_by_degree", "edges_positive", f"{DISLIKE} edges = 0"),
    ("evaluation.dislike_by_degree", "histogram_whole", f"{DISLIKE} edges = edges + 1"),
    ("evaluation.dislike_by_degree", "error_agrees", f"{DISLIKE} error = 1 where edges = 1"),
    ("evaluation.dislike_by_degree", "bins_disjoint", f"{DISLIKE} degree_high = 2"),
    ("evaluation.dislike_by_degree", "edges_agree", "delete from evaluation.dislike_by_degree where degree_low = 1"),
    ("evaluation.considered", "metric_known", "update evaluation.considered set metric = 'auc'"),
    ("evaluation.considered", "metric_once", "insert into evaluation.considered from evaluation.considered"),
    ("evaluation.considered", "value_in_range", "update evaluation.considered set value = 1.1"),
    ("evaluation.considered", "value_in_range", "update evaluation.considered set value = 'inf'"),
    ("evaluation.considered", "standard_error_in_range", "update evaluation.considered set standard_error = -1"),
    ("evaluation.considered", "same_pairs", "update evaluation.considered set likes = 1 where model = 'popularity'"),
    ("evaluation.considered", "same_pairs", "update evaluation.considered set dislikes = 0"),
    (
        "evaluation.considered",
        "auc_possible",
        "update evaluation.considered set likes = 3, value = 0.1 where metric = 'considered_auc'",
    ),
    (
        "evaluation.considered",
        "calibration_error_agrees",
        (
            f"insert into evaluation.considered values ({RUN}, 'leave_one_out', 'random_graph', "
            "'considered_calibration_error', 0.1, null, 2, 3)"
        ),
    ),
    (
        "evaluation.considered",
        "auc_error_possible",
        "update evaluation.considered set standard_error = 0.9 where metric = 'considered_auc'",
    ),
    ("evaluation.considered", "popularity_beside", "delete from evaluation.considered where model = 'popularity'"),
    ("evaluation.calibration", "pairs_agree", "update evaluation.considered set dislikes = 9"),
    ("indexed.next_events", "edges_agree", "insert into indexed.next_events values (0, 0, 'dropped')"),
    ("indexed.next_events", "edges_agree", "insert into indexed.next_events values (0, 8, 'dropped')"),
    ("indexed.next_events", "edges_agree", "delete from indexed.next_events where user_index = 1"),
    ("indexed.next_events", "edges_agree", "delete from indexed.next_events"),
    (
        "indexed.next_events",
        "nothing_later_trains",
        "update indexed.next_events set role = 'train' where item_index = 0",
    ),
    (
        "indexed.next_events",
        "nothing_later_trains",
        "update indexed.interactions set first_at = timestamp '2025-12-31' where item_index = 1",
    ),
    (
        "indexed.next_events",
        "nothing_later_trains",
        """update indexed.interactions set first_at = timestamp '2025-12-31 23:59' where user_index = 0 and item_index = 0;
        update indexed.interactions set first_at = timestamp '2026-01-01' where item_index = 0 and first_at is null;
        update indexed.next_events set role = 'train' where item_index = 0""",
    ),
    ("indexed.given", "edges_agree", "insert into indexed.given values (0, 0, 'train')"),
    ("indexed.given", "edges_agree", "insert into indexed.given values (0, 2, 'train')"),
    ("indexed.given", "edges_agree", "insert into indexed.given values (8, 0, 'train')"),
    ("indexed.given", "edges_agree", "delete from indexed.given where user_index = 1 and item_index = 0"),
    ("indexed.given", "edges_agree", "delete from indexed.given"),
    ("indexed.given", "edges_agree", "update indexed.given set role = 'train' where role = 'test'"),
    ("indexed.strong_generalization", "drawn_as_published", "select 1"),
    ("indexed.leave_one_out", "held_out_as_drawn", "select 1"),
    ("diagnostics.degrees", "side_known", "insert into diagnostics.degrees values ('users', 1, 1)"),
    ("diagnostics.degrees", "degree_once", "insert into diagnostics.degrees values ('user', 5, 1)"),
    ("diagnostics.degrees", "vertices_positive", "insert into diagnostics.degrees values ('user', 9, 0)"),
    ("diagnostics.degrees", "degree_positive", "insert into diagnostics.degrees values ('user', 0, 9)"),
    ("diagnostics.degrees", "vertices_recounted", "delete from diagnostics.degrees where side = 'item'"),
    ("diagnostics.degrees", "densities_agree", "insert into diagnostics.degrees values ('user', 1, 1)"),
    ("diagnostics.power_law_fits", "side_known", "update diagnostics.power_law_fits set side = 'left'"),
    ("diagnostics.power_law_fits", "family_once", "update diagnostics.power_law_fits set side = 'user'"),
    ("diagnostics.power_law_fits", "families_complete", "delete from diagnostics.power_law_fits where side = 'user'"),
    ("diagnostics.power_law_fits", "support_agrees", LAW + "6, 6, -5, 12, 0.2, 0.5)"),
    ("diagnostics.power_law_fits", "support_agrees", LAW + "5, 3, -5, 12, 0.2, 0.5)"),
    ("diagnostics.power_law_fits", "laws_agree", "update diagnostics.power_law_fits set ks = 0.3 where side = 'user'"),
    (
        "diagnostics.power_law_fits",
        "laws_agree",
        "update diagnostics.power_law_fits set exponent = 1.5 where side = 'user'",
    ),
    ("diagnostics.power_law_fits", "aic_agrees", LAW + "5, 6, -5, 12.5, 0.2, 0.5)"),
    ("diagnostics.power_law_fits", "ks_in_range", LAW + "1, 2, -5, 12, 1.2, 0.5)"),
    ("diagnostics.power_law_fits", "p_value_in_range", LAW + "1, 2, -5, 12, 0.2, 1.5)"),
    ("diagnostics.power_law_fits", "likelihood_finite", LAW + "1, 2, '-inf', 12, 0.2, 0.5)"),
    ("diagnostics.power_law_fits", "aic_finite", LAW + "1, 2, -5, 'nan', 0.2, 0.5)"),
    ("operations.model_settings", "settled_once", "update operations.model_settings set model = 'wmf'"),
    ("operations.model_settings", "origin_known", SETTLED + "origin = 'guess' where model = 'slim'"),
    ("operations.model_settings", "search_told", SETTLED + "origin = 'kept' where model = 'slim'"),
    ("operations.model_settings", "search_told", SETTLED + "origin = 'given' where model = 'wmf'"),
    ("operations.model_settings", "search_told", SETTLED + "key = null where model = 'wmf'"),
    (
        "operations.model_settings",
        "settings_of_run",
        (
            f"insert into operations.runs values ({RUN}, 'backfill', 'ml-1m', timestamp '2026-01-02', null, 'running', "
            """'{"models": {"slim": {"l2": 2}}}', '1'); update operations.model_settings set settings = '{"l2": 1}'"""
        ),
    ),
    ("operations.model_settings", "no_worse", SETTLED + "reached = 0.7 where model = 'wmf'"),
    ("operations.model_settings", "numbers_finite", SETTLED + "seconds = 'inf' where model = 'wmf'"),
    ("operations.model_fits", "fit_once", FIT + f"'m', 'd', 1, 1, 1); {FIT} 'm', 'e', 1, 1, 1)"),
    ("operations.model_fits", "seconds_in_range", FIT + "'m', 'd', -1, 1, 1)"),
    ("operations.model_fits", "digest_formed", FIT + "'m', 'g', 1, 1, 1)"),
    ("operations.model_fits", "digest_of_one_model", FIT + "'m', 'abc', 1, 1, 1)"),
    ("operations.model_fits", "something_saved", FIT + "'m', 'd', 1, 1, 0)"),
    ("fitted_arrays", "arrays_there", "delete from fitted_arrays"),
    ("fitted_arrays", "counts_not_null", "update fitted_arrays set not_finite = null"),
    ("fitted_arrays", "entries_finite", "update fitted_arrays set not_finite = 1"),
    (
        "evaluation.metrics",
        "protocol_known",
        f"update evaluation.metrics set protocol = 'x' where run_id = {RUN}",
    ),
    ("evaluation.metrics", "metric_once", f"{METRIC} 'r', 1, 0, 1); {METRIC} 'r', 1, 0, 1)"),
    ("evaluation.metrics", "value_finite", f"{METRIC} 'r', 'nan', 0, 1)"),
    ("evaluation.metrics", "value_in_range", f"{METRIC} 'recall_of_all@20', 1.01, 0, 1)"),
    ("evaluation.metrics", "value_in_range", f"{METRIC} 'validation_ndcg@100', 'nan', 0, 1)"),
    ("evaluation.metrics", "value_in_range", f"{METRIC} 'median_rank', -0.1, 0, 1)"),
    ("evaluation.metrics", "standard_error_in_range", f"{METRIC} 'r', 1, -0.1, 1)"),
    ("evaluation.metrics", "standard_error_in_range", f"{METRIC} 'r', 1, 'inf', 1)"),
    ("evaluation.metrics", "mean_rank_agrees", "update evaluation.metrics set value = 0.79 where value = 0.8"),
    ("evaluation.metrics", "mean_rank_agrees", "update evaluation.metrics set users = 4 where value = 0.8"),
    ("evaluation.metrics", "mean_rank_agrees", "delete from evaluation.ranks_by_degree where side = 'item'"),
    (
        "evaluation.metrics",
        "standard_error_agrees",
        "update evaluation.metrics set standard_error = 0.4 where value = 0.8",
    ),
    (
        "evaluation.metrics",
        "metrics_in_order",
        f"{METRIC} 'recall@20', 0.1, 0, 1); {METRIC} 'recall_of_all@20', 0.2, 0, 1)",
    ),
    (
        "evaluation.metrics",
        "percentiles_agree",
        (
            f"insert into evaluation.metrics select {RUN}, 'given', 'm', 's', unnest(['mean_rank', 'rank_p05', 'rank_p25', "
            "'median_rank', 'rank_p75', 'rank_p95']), unnest([0.95, 0.1, 0.2, 0.3, 0.4, 0.5]), 0.01, 200"
        ),
    ),
    ("evaluation.metrics", "users_positive", f"{METRIC} 'r', 1, 0, 0)"),
    (
        "evaluation.metrics",
        "not_worse_than_popularity",
        "update evaluation.metrics set value = 0.75 where value = 0.9",
    ),
    (
        "evaluation.comparisons",
        "pair_once",
        f"{COMPARED} 'b', 's', 0, 0, 1, 9); {COMPARED} 'b', 's', 0, 0, 1, 9)",
    ),
    ("evaluation.comparisons", "pair_once", f"{COMPARED} 'a', 's', 0, 0, 1, 9)"),
    ("evaluation.comparisons", "difference_finite", f"{COMPARED} 'b', 's', 'nan', 0, 1, 9)"),
    ("evaluation.comparisons", "standard_error_in_range", f"{COMPARED} 'b', 's', 0, -1, 1, 9)"),
    ("evaluation.comparisons", "p_value_agrees", "update evaluation.comparisons set users = 100, p_value = 0.9"),
    ("evaluation.comparisons", "standard_error_agrees", "update evaluation.comparisons set standard_error = 0.03"),
    ("evaluation.comparisons", "p_value_in_range", f"{COMPARED} 'b', 's', 0, 0, 1.1, 9)"),
    ("evaluation.comparisons", "difference_agrees", "update evaluation.comparisons set difference = -difference"),
    ("evaluation.comparisons", "difference_agrees", "update evaluation.comparisons set users = 2"),
    ("evaluation.comparisons", "difference_agrees", "delete from evaluation.metrics where value = 0.9"),
    ("evaluation.comparisons", "pairs_complete", "delete from evaluation.comparisons where difference = 0.2"),
    ("evaluation.comparisons", "users_positive", f"{COMPARED} 'b', 's', 0, 0, 1, 0)"),
    ("evaluation.ranks_by_degree", "side_known", f"{BIN} 'x', 1, 1, 1, 0.5, 0, 0, 0, 0, 0)"),
    ("evaluation.ranks_by_degree", "mean_rank_in_range", f"{BIN} 'user', 1, 1, 1, 1.5, 0, 0, 0, 0, 0)"),
    (
        "evaluation.ranks_by_degree",
        "percentiles_in_order",
        f"{BIN} 'user', 1, 1, 1, 0.5, 0.1, 0, 0.1, 0.1, 0.1)",
    ),
    ("evaluation.ranks_by_degree", "percentiles_in_order", f"{BIN} 'user', 1, 1, 1, 0.5, 0, 0, 0, 0, 1.1)"),
    ("evaluation.ranks_by_degree", "percentiles_in_order", f"{BIN} 'user', 1, 1, 1, 0.5, -0.1, 0, 0, 0, 1)"),
    ("evaluation.ranks_by_degree", "edges_positive", f"{BIN} 'user', 1, 1, 0, 0.5, 0, 0, 0, 0, 0)"),
    (
        "evaluation.ranks_by_degree",
        "percentiles_agree",
        "update evaluation.ranks_by_degree set p50 = 0.7 where edges = 1",
    ),
    (
        "evaluation.ranks_by_degree",
        "percentiles_add_up",
        (
            "update evaluation.ranks_by_degree set edges = 1000 * edges; insert into evaluation.metrics "
            f"values ({RUN}, 'leave_one_out', 'popularity', 'score', 'median_rank', 0.01, null, 3000)"
        ),
    ),
    (
        "evaluation.ranks_by_degree",
        "bins_disjoint",
        f"{BIN} 'user', 1, 4, 1, 0.5, 0, 0, 0, 0, 0); {BIN} 'user', 4, 9, 1, 0.5, 0, 0, 0, 0, 0)",
    ),
    ("evaluation.ranks_by_degree", "bins_disjoint", f"{BIN} 'user', 2, 1, 1, 0.5, 0, 0, 0, 0, 0)"),
    ("evaluation.ranks_by_both_degrees", "mean_rank_in_range", f"{CELL} 4, 7, 2, 3, 1, 1.5)"),
    ("evaluation.ranks_by_both_degrees", "edges_positive", f"{CELL} 4, 7, 2, 3, 0, 0.5)"),
    ("evaluation.ranks_by_both_degrees", "bins_in_order", f"{CELL} 7, 4, 2, 3, 1, 0.5)"),
    ("evaluation.ranks_by_both_degrees", "bins_in_order", f"{CELL} 4, 7, -1, 3, 1, 0.5)"),
    ("evaluation.ranks_by_both_degrees", "cell_once", f"{CELL} 1, 1, 2, 3, 1, 0.5)"),
    ("evaluation.ranks_by_both_degrees", "margins_agree", f"{CELL} 4, 7, 2, 3, 1, 0.5)"),
    (
        "evaluation.ranks_by_both_degrees",
        "margins_agree",
        f"delete from evaluation.ranks_by_both_degrees where run_id = {RUN} and model = 'popularity'",
    ),
    (
        "evaluation.ranks_by_both_degrees",
        "margins_agree",
        f"update evaluation.ranks_by_both_degrees set mean_rank = 0.7 where run_id = {RUN} and user_degree_low = 2",
    ),
    ("evaluation.like_by_degree", "error_in_range", f"{LIKE} error = 1.5"),
    ("evaluation.like_by_degree", "edges_positive", f"{LIKE} edges = 0"),
    ("evaluation.like_by_degree", "histogram_whole", f"{LIKE} histogram = histogram[1:19]"),
    ("evaluation.like_by_degree", "histogram_whole", f"{LIKE} edges = edges + 1"),
    (
        "evaluation.like_by_degree",
        "histogram_whole",
        f"{LIKE} histogram = list_concat([-1, 1]::bigint[], histogram[3:20])",
    ),
    ("evaluation.like_by_degree", "error_agrees", f"{LIKE} error = 1 where edges = 1"),
    ("evaluation.like_by_degree", "bins_disjoint", f"{LIKE} degree_high = 2"),
    ("evaluation.like_by_degree", "bins_disjoint", f"{LIKE} degree_high = 0"),
    ("evaluation.like_by_degree", "edges_agree", "delete from evaluation.like_by_degree where degree_low = 1"),
    ("evaluation.like_by_degree", "edges_agree", f"{LIKE} model = 'm'"),
    ("evaluation.calibration", "reference_known", "update evaluation.calibration set reference = 'x'"),
    ("evaluation.calibration", "bin_once", f"{TENTH} 'coin', 0.85, 0.95, 1, 0.9, 1, null)"),
    ("evaluation.calibration", "bin_once", f"{TENTH} 'coin', 0.5, 0.4, 1, 0.45, 1, null)"),
    ("evaluation.calibration", "bin_once", f"{TENTH} 'coin', -0.1, 0, 1, 0, 1, null)"),
    ("evaluation.calibration", "like_in_bin", f"{TENTH} 'coin', 0.4, 0.5, 1, 0.6, 1, null)"),
    ("evaluation.calibration", "like_in_bin", f"{TENTH} 'coin', 0.4, 0.5, 1, 'nan', 1, null)"),
    ("evaluation.calibration", "observed_in_range", f"{TENTH} 'coin', 0.4, 0.5, 1, 0.45, 1.1, null)"),
    ("evaluation.calibration", "standard_error_in_range", f"{TENTH} 'coin', 0.4, 0.5, 1, 0.45, 1, -0.1)"),
    ("evaluation.calibration", "standard_error_in_range", f"{TENTH} 'coin', 0.4, 0.5, 1, 0.45, 1, 'inf')"),
    ("evaluation.calibration", "error_possible", "update evaluation.calibration set standard_error = 0.1"),
    ("evaluation.calibration", "observed_measured", "update evaluation.calibration set observed = mean_like"),
    (
        "evaluation.calibration",
        "likes_counted",
        "update evaluation.calibration set observed = 0 where reference = 'sampled_negatives'",
    ),
    ("evaluation.calibration", "references_agree", f"{TENTH} 'density_ratio', 0.9, 1, 6, 0.96, 0.4, 0.01)"),
    ("evaluation.calibration", "pairs_positive", f"{TENTH} 'coin', 0.4, 0.5, 0, 0.45, 1, null)"),
    ("evaluation.calibration", "pairs_agree", f"{TENTH} 'coin', 0.4, 0.5, 5, 0.45, 1, null)"),
    ("evaluation.calibration", "pairs_agree", "update evaluation.calibration set model = 'm'"),
    (
        "evaluation.calibration",
        "like_comes_true",
        "update evaluation.calibration set pairs = 100, standard_error = 0.01 where pairs = 5",
    ),
    ("evaluation.beyond_accuracy", "protocol_known", "update evaluation.beyond_accuracy set protocol = 'x'"),
    ("evaluation.beyond_accuracy", "metric_once", f"{LISTS} 'coverage@20', 0.5, null, 3)"),
    ("evaluation.beyond_accuracy", "value_in_range", f"{LISTS} 'gini@20', 1.1, null, 3)"),
    ("evaluation.beyond_accuracy", "value_in_range", f"{LISTS} 'gini@20', 'nan', null, 3)"),
    ("evaluation.beyond_accuracy", "value_in_range", f"{LISTS} 'popularity_lift@20', -1.1, null, 3)"),
    ("evaluation.beyond_accuracy", "coverage_counted", "update evaluation.beyond_accuracy set value = 0.33"),
    ("evaluation.beyond_accuracy", "standard_error_in_range", f"{LISTS} 'x@20', 1, -0.1, 3)"),
    ("evaluation.beyond_accuracy", "users_agree", f"{LISTS} 'gini@20', 0.5, null, 2)"),
    ("evaluation.beyond_accuracy", "users_agree", f"{LISTS} 'popularity_lift@20', 0.5, null, 4)"),
    ("evaluation.beyond_accuracy", "users_agree", "update evaluation.beyond_accuracy set score = 'x'"),
    (
        "evaluation.beyond_accuracy",
        "not_narrower_than_popularity",
        "update evaluation.beyond_accuracy set value = 0.05 where model = 'random_graph'",
    ),
    ("evaluation.sweeps", "protocol_known", f"{SWEPT} protocol = 'x'"),
    ("evaluation.sweeps", "settings_are_json", f"{SWEPT} settings = 'r = 2'"),
    ("evaluation.sweeps", "settings_are_json", f"{SWEPT} settings = '2'"),
    ("evaluation.sweeps", "metric_once", f"{SWEPT} degree_low = null, degree_high = null, side = null"),
    ("evaluation.sweeps", "bin_whole", f"{SWEPT} degree_low = null"),
    ("evaluation.sweeps", "bin_whole", f"{SWEPT} degree_high = 1"),
    ("evaluation.sweeps", "side_known", f"{SWEPT} side = 'x' where side is not null"),
    ("evaluation.sweeps", "side_known", f"{SWEPT} side = 'user'"),
    ("evaluation.sweeps", "value_in_range", f"{SWEPT} value = 1.1"),
    ("evaluation.sweeps", "value_in_range", f"{SWEPT} metric = 'gain', value = 'nan'"),
    ("evaluation.sweeps", "standard_error_in_range", f"{SWEPT} standard_error = -1"),
    ("evaluation.sweeps", "users_positive", f"{SWEPT} users = 0"),
    ("evaluation.sweeps", "seconds_in_range", f"{SWEPT} seconds = -1"),
    ("diagnostics.hidden_graph_ratios", "rate_positive", f"{RATIOS} r = 0 where r = 1"),
    ("diagnostics.hidden_graph_ratios", "item_once", f"{RATIOS} r = 1"),
    ("diagnostics.hidden_graph_ratios", "negatives_in_range", f"{RATIOS} negatives = 3 where positives = 1"),
    ("diagnostics.hidden_graph_ratios", "negatives_in_range", f"{RATIOS} negatives = -1"),
    ("diagnostics.hidden_graph_ratios", "positives_agree", f"{RATIOS} positives = 2 where positives = 3"),
    (
        "diagnostics.hidden_graph_ratios",
        "positives_agree",
        "delete from diagnostics.hidden_graph_ratios where r = 1 and item_index = 2",
    ),
    ("diagnostics.hidden_graph_ratios", "negatives_counted", f"{RATIOS} negatives = 1 where item_index = 2"),
    (
        "diagnostics.hidden_graph_ratios",
        "negatives_spread",
        "insert into diagnostics.hidden_graph_ratios select 2, i, 4, if(i % 2 = 0, 40, 1) from range(100) as items(i)",
    ),
    ("diagnostics.hidden_graph_ratios", "no_more_negatives", f"{RATIOS} negatives = 9"),
    (
        "published.recommendations",
        "ranks_consecutive",
        "update published.recommendations set rank = 2 where user_id = 'u1'",
    ),
    (
        "published.recommendations",
        "ranks_consecutive",
        "insert into published.recommendations values ('u1', 'i4', 3, 1, 1, 1)",
    ),
    (
        "published.recommendations",
        "ranks_consecutive",
        "insert into published.recommendations values ('u1', 'i4', 1, 1, 1, 1)",
    ),
    (
        "published.recommendations",
        "item_once",
        "insert into published.recommendations values ('u1', 'i3', 2, 1, 1, 1)",
    ),
    ("published.recommendations", "score_finite", "update published.recommendations set score = 'inf'"),
    (
        "published.recommendations",
        "scores_fall",
        "insert into published.recommendations values ('u1', 'i4', 2, 0.6, 1, 1)",
    ),
    ("published.recommendations", "everybody_served", "delete from published.recommendations where user_id = 'u1'"),
    ("published.recommendations", "like_in_range", "update published.recommendations set like_mean = 1.1"),
    ("published.recommendations", "like_sd_in_range", "update published.recommendations set like_sd = 'nan'"),
    ("published.recommendations", "like_sd_possible", "update published.recommendations set like_sd = 0"),
    (
        "published.recommendations",
        "like_sd_possible",
        "update published.recommendations set like_mean = 0.1, like_sd = 0.4",
    ),
    (
        "published.recommendations",
        "scores_measured",
        "insert into published.recommendations select 'u3', 'i' || i, i, -i, null, null from range(1, 30) as ranks(i)",
    ),
    ("published.recommendations", "nothing_seen", "update published.recommendations set item_id = 'i1'"),
    ("published.recommendations", "ids_curated", "update published.recommendations set user_id = 'u9'"),
    ("published.recommendations", "ids_curated", "update published.recommendations set item_id = 'i9'"),
]


# values of a stage under which a rule binds
BINDING = {
    "only_where_asked": {"explicit_negatives": False},
    "active_stay": {"min_user_edges": 5},
    "parts_sized": {"scheme": "liang2018", "held_out_users": 1},
    "drawn_as_published": {"scheme": "liang2018", "drawn_parts": "1"},
    "held_out_as_drawn": {"drawn_left_out": "1"},
}


def contract(table):
    return next(one for one in load() if one.table == table)


def broken(connection, table, parameters):
    """Results of the rules of a table that do not hold, by rule."""
    results = check_contracts(connection, [contract(table)], parameters)
    return {result.rule: result for result in results if not result.success}


def test_every_rule_is_broken_below():
    assert {(one.table, rule.name) for one in load() for rule in one.rules} == {
        (table, rule) for table, rule, _ in BREACHES if rule != "columns"
    }


@pytest.mark.parametrize("stage", STAGES)
def test_good_rows_keep_every_contract(good, parameters, stage):
    results = check(good, stage, parameters)
    assert [result for result in results if not result.success] == []
    assert {(r.contract, r.rule) for r in results} == {
        (one.table, name)
        for one in load()
        if one.stage == stage
        for name in ["columns", *(rule.name for rule in one.rules)]
    }


@pytest.mark.parametrize(
    ("table", "rule", "breach"), BREACHES, ids=[f"{t}-{r}-{i}" for i, (t, r, _) in enumerate(BREACHES)]
)
def test_a_bad_row_breaks_its_rule(good, parameters, table, rule, breach):
    good.execute(breach)
    result = broken(good, table, {**parameters, **BINDING.get(rule, {})})[rule]
    declared = next((one for one in contract(table).rules if one.name == rule), None)
    if declared is not None:
        assert (result.severity, result.description) == (declared.severity, declared.description)
    assert result.observed
    if not rule.startswith(("not_empty", "arrays_there", "counts_not_null")):
        assert result.samples


@pytest.mark.parametrize(
    "table", [one.table for one in load() if "." in one.table and one.table != "indexed.interactions"]
)
def test_an_empty_table_keeps_its_contract(empty, parameters, table):
    assert broken(empty, table, parameters) == {}


def test_a_table_that_is_not_there_breaks_its_contract(good, parameters):
    good.execute("drop table fitted_arrays")
    assert "fitted_arrays does not exist" in broken(good, "fitted_arrays", parameters)["columns"].observed


def test_bounds_that_a_data_set_does_not_declare_do_not_bind(good, parameters):
    good.execute("update raw.events set value = -700 where line_number = 1")
    assert broken(good, "raw.events", {**parameters, "value_min": None}) == {}
    assert "value_in_range" in broken(good, "raw.events", parameters)


def test_a_filtered_split_may_leave_out_users_and_items_but_no_edge_between_those_it_keeps(good, parameters):
    table, filtered = "indexed.strong_generalization", {**parameters, "min_item_edges": 2}
    good.execute("delete from indexed.strong_generalization where item_index = 2")
    assert broken(good, table, filtered) == {}
    assert set(broken(good, table, parameters)) == {"everybody_there"}
    good.execute("delete from indexed.strong_generalization where user_index = 2 and item_index = 1")
    assert broken(good, table, filtered)["edges_agree"].samples == [
        {"user_index": 2, "item_index": 1, "times": 0, "curated": True, "one_role": None, "other_role": None}
    ]
    assert "everybody_there" in broken(good, table, {**parameters, "min_user_edges": 6})


def test_an_edge_in_a_train_and_in_a_test_file_is_for_training(good, parameters):
    both = {**parameters, "train_files": "1,2"}
    assert set(broken(good, "indexed.given", both)) == {"edges_agree"}
    good.execute("update indexed.given set role = 'train'")
    assert broken(good, "indexed.given", both) == {}


def test_a_given_split_that_was_not_asked_for_is_empty(good, parameters):
    not_asked = {**parameters, "given": False, "train_files": "", "test_files": ""}
    assert broken(good, "indexed.given", not_asked)["edges_agree"].observed == "16 rows"
    good.execute("delete from indexed.given")
    assert broken(good, "indexed.given", not_asked) == {}


@pytest.mark.parametrize("unknown", ["train_files", "test_files"])
def test_roles_of_files_that_are_not_known_are_not_recounted(good, parameters, unknown):
    good.execute("update indexed.given set role = 'train'")
    given = {name: value for name, value in parameters.items() if name != unknown}
    assert broken(good, "indexed.given", given) == {}


def test_one_edge_in_place_of_another_is_seen(good, parameters):
    """As many edges as there should be: counts alone would not tell."""
    good.execute("update indexed.leave_one_out set item_index = 2 where user_index = 1 and item_index = 1")
    assert set(broken(good, "indexed.leave_one_out", parameters)) == {"edges_agree"}


def test_recommendations_that_the_run_did_not_make_are_not_held_against_its_edges(good, parameters):
    good.execute("insert into indexed.interactions values (0, 2, 1, null, null, 1, 3)")
    assert set(broken(good, "published.recommendations", parameters)) == {"nothing_seen", "everybody_served"}
    assert broken(good, "published.recommendations", {**parameters, "recommendations_made": False}) == {}


def test_the_count_is_of_all_rows_and_the_samples_are_some(good, parameters):
    good.execute("insert into raw.events select '', 'i1', 5, null, 1, i from range(1000) as lines(i)")
    result = broken(good, "raw.events", parameters)["user_named"]
    assert result.observed == "1,000 of 1,017 rows"
    assert 0 < len(result.samples) < 100
    assert result.samples[0]["item_id"] == "i1"


def test_nothing_is_written_by_a_check(good, parameters):
    def state():
        tables = good.execute("select table_name, estimated_size from duckdb_tables() order by all").fetchall()
        return tables, good.execute("from raw.events order by all").fetchall()

    before = state()
    for stage in STAGES:
        check(good, stage, parameters)
    assert state() == before
