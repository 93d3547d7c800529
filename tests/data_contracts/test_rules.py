"""Every rule holds on good rows, and is broken by a bad one."""

import pytest

from oneclass.data_contracts import check
from oneclass.data_contracts.checks import check_contracts
from oneclass.data_contracts.contracts import STAGES, load

RUN = "'ml-1m 10:02:03'"
METRIC = f"insert into evaluation.metrics values ({RUN}, 'given', 'm', 's',"
COLD = f"insert into evaluation.metrics values ({RUN}, 'cold_items', 'm', 's',"
NEXT = f"insert into evaluation.metrics values ({RUN}, 'next_events', 'm', 's',"
COMPARED = f"insert into evaluation.comparisons values ({RUN}, 'given', 'm', 'a', 's',"
BIN = f"insert into evaluation.ranks_by_degree values ({RUN}, 'm', 's',"
CELL = f"insert into evaluation.ranks_by_both_degrees values ({RUN}, 'random_graph', 'like',"
LIKE = "update evaluation.like_by_degree set"
DISLIKE = "update evaluation.dislike_by_degree set"
TENTH = f"insert into evaluation.calibration values ({RUN}, 'random_graph',"
LISTS = f"insert into evaluation.beyond_accuracy values ({RUN}, 'leave_one_out', 'random_graph', 'like',"
STRATA = "update evaluation.strata set"
RATIOS = "update diagnostics.hidden_graph_ratios set"
NIGHT = "update operations.nights set value ="
SETTLED = "update operations.model_settings set "
FIT = f"insert into operations.model_fits values ({RUN}, 'given',"
FIRST_EDGE = "user_index = 0 and item_index = 0"
CAME_AGAIN = f"update indexed.interactions set first_at = '2025-12-31', last_at = '2026-01-02' where {FIRST_EDGE}"
SPREAD = "insert into TABLE select 'u' || i, 'i' || i, 5, null, 1, 100 + i, null from range(50) as r(i)"
DAY = "date '2026-01-01' + item_index"
DAYS = f"update indexed.interactions set first_at = {DAY}, last_at = {DAY}"
LISTED = "insert into TABLE values ("
LAW = "insert into diagnostics.power_law_fits values ('user', 'x', null, null,"

# table: its rules, each with the change of the good rows that breaks it; TABLE stands for the table's name
BREACHES = {
    "raw.events": [
        ("user_named", "insert into TABLE values ('', 'i1', 5, null, 1, 9, null)"),
        ("item_named", "insert into TABLE values ('u1', '', 5, null, 1, 9, null)"),
        ("value_finite", "update TABLE set value = 'nan' where line_number = 1"),
        ("value_in_range", "update TABLE set value = 5.5 where line_number = 1"),
        ("kind_known", "update TABLE set event = if(line_number = 1, 'gift', 'order')"),
        ("value_in_range", "update TABLE set value = 0.5 where line_number = 1"),
        ("file_known", "insert into TABLE values ('u1', 'i1', 5, null, 3, 1, null)"),
        ("times_plausible", "update TABLE set occurred_at = timestamp '1970-08-23' where line_number = 1"),
        ("times_plausible", "update TABLE set occurred_at = now()::timestamp + interval 3 day where line_number = 1"),
        (
            "events_spread",
            f"{SPREAD}; insert into TABLE select '-1', 'i' || i, 5, null, 1, 200 + i, null from range(25) r(i)",
        ),
        (
            "events_spread",
            f"{SPREAD}; insert into TABLE select 'u' || i, '-1', 5, null, 1, 200 + i, null from range(25) r(i)",
        ),
        ("columns", "alter table TABLE drop column occurred_at"),
        ("columns", "alter table TABLE add column device varchar"),
        ("columns", "alter table TABLE alter value type float"),
        ("columns", "alter table TABLE alter value drop not null"),
    ],
    "raw.attributes": [
        ("side_known", "update TABLE set side = 'x' where name = 'age'"),
        ("id_named", "update TABLE set id = '' where name = 'age'"),
        ("one_row_per_id", "insert into TABLE from TABLE where name = 'age'"),
        ("columns_known", "delete from TABLE where id = 'i1' and name = 'stock'"),
        ("columns_known", "insert into TABLE values ('user', 'u1', 'height', '1')"),
        ("columns_known", "delete from TABLE where name = 'stock'"),
        ("few_missing", "update TABLE set value = null where name = 'age'"),
    ],
    "indexed.new_items": [
        ("numbered_after_known", "update TABLE set item_index = 7"),
        ("numbered_after_known", "insert into TABLE values (8, 'n2')"),
        ("complete", "update TABLE set item_id = 'i1'"),
        ("complete", "delete from TABLE"),
        ("complete", "insert into TABLE values (7, 'n1')"),
    ],
    "operations.attribute_tables": [
        ("one_is_current", "update TABLE set is_current = true"),
        ("types_known", "update TABLE set types = ['genre'] where side = 'user'"),
        ("types_known", "update TABLE set types = [] where side = 'user'"),
    ],
    "raw.places": [
        ("places_counted", "update TABLE set place = 2 where line_number = 1"),
        ("events_agree", "update TABLE set item_id = 'i1' where line_number = 1"),
        ("events_agree", "delete from TABLE where line_number = 1"),
    ],
    "raw.rejects": [
        ("file_known", "insert into TABLE values (3, 1, null, 'x')"),
        ("share_of_rejects", "update operations.log_files set rejects = 9 where file_id = 2"),
    ],
    "operations.log_files": [
        ("file_id_unique", "update TABLE set file_id = 1"),
        ("sha256_unique", "update TABLE set sha256 = 'd1'"),
        ("content_unique", "update TABLE set content_sha256 = 'c1'"),
        ("events_counted", "delete from raw.events where file_id = 2"),
        ("rejects_counted", "delete from raw.rejects"),
    ],
    "operations.arrivals": [
        ("outcome_known", "update TABLE set outcome = 'old' where outcome = 'changed'"),
        ("set_aside_says_why", "update TABLE set reason = null"),
        ("set_aside_says_why", "update TABLE set reason = 'x'"),
        ("read_in", "update TABLE set events = events + 1 where file_id = 2"),
        ("read_in", "update TABLE set sha256 = 'd0' where outcome = 'changed'"),
        ("counts_of_outcome", "update TABLE set events_before = 3 where outcome = 'new'"),
        ("counts_of_outcome", "update TABLE set events = 3 where outcome = 'set aside'"),
        ("counts_before", "update TABLE set events_before = 9 where outcome = 'changed'"),
        ("counts_before", "update TABLE set rejects_before = 1 where outcome = 'changed'"),
    ],
    "operations.nights": [
        ("figure_once", f"insert into TABLE from TABLE where figure = 'events' and run_id = {RUN}"),
        ("batch_not_empty", f"{NIGHT} 0 where figure = 'delivered'"),
        ("newest_event_fresh", f"{NIGHT} 24.1 where figure = 'hours_old'"),
        ("volume_usual", f"{NIGHT} 2000 * exp(-0.51) where figure = 'events'"),
        ("volume_usual", f"{NIGHT} 2000 * exp(0.51) where figure = 'events'"),
        ("newcomers_usual", f"{NIGHT} 0.151 where figure = 'new_user_share'"),
        ("values_usual", f"{NIGHT} 0.551 where figure = 'value_level'"),
        ("times_usual", f"{NIGHT} 0.351 where figure = 'hours_moved'"),
        ("times_usual", f"{NIGHT} -0.71 where figure = 'clock_shift'"),
        ("times_usual", f"{NIGHT} 0.91 where figure = 'clock_shift'"),
        ("returning_users_usual", f"{NIGHT} 0.059 where figure = 'missing_user_share'"),
        ("items_usual", f"{NIGHT} 0.824 where figure = 'item_overlap'"),
        ("heavy_hitters_usual", f"{NIGHT} 0.0166 where figure = 'heaviest_user_share'"),
        (
            "users_spread",
            f"insert into TABLE values ({RUN}, date '2026-01-02', 'top_users_share', 0.9, true, null, null, 0)",
        ),
        ("rejects_few", f"{NIGHT} 0.26 where figure = 'reject_share'"),
        ("hard_limits", f"{NIGHT} 0.95 where figure = 'new_user_share'"),
    ],
    "diagnostics.nightly_exponents": [
        ("figure_once", "insert into TABLE from diagnostics.nightly_exponents"),
        ("exponents_usual", "update TABLE set value = 1.551 where usual is not null"),
    ],
    "operations.promotions": [
        ("decided_once", "insert into TABLE from operations.promotions"),
        ("difference_finite", "update TABLE set difference = 'nan'"),
        ("standard_error_in_range", "update TABLE set standard_error = -1"),
        ("margin_in_range", "update TABLE set margin = 'inf'"),
        ("compared_by_something", "update TABLE set champion = null"),
        ("decision_follows", "update TABLE set promoted = false"),
        ("decision_follows", "update TABLE set difference = -difference"),
        ("decision_follows", "update TABLE set difference = -difference, reason = 'the simplest of 2 lists'"),
        ("decision_follows", "update TABLE set promoted = false, champion = null"),
        ("reason_given", "update TABLE set reason = ' '"),
    ],
    "operations.funnel": [
        ("losses_add_up", f"update TABLE set lost = 2 where step = 2 and run_id = {RUN}"),
        ("losses_add_up", f"delete from TABLE where step = 1 and run_id = {RUN}"),
        ("losses_add_up", f"update TABLE set lost = 3 where step = 0 and run_id = {RUN}"),
        ("begins_with_the_logs", "delete from raw.rejects"),
        ("ends_in_the_graph", "delete from indexed.interactions where user_index = 1"),
        ("ends_in_the_graph", f"update TABLE set users = 2 where step = 3 and run_id = {RUN}"),
    ],
    "indexed.interactions": [
        ("not_empty", "delete from indexed.interactions"),
        ("edge_once", "insert into TABLE from TABLE limit 1"),
        ("event_count_positive", "update TABLE set event_count = 0 where user_index = 0"),
        ("times_in_order", "update TABLE set first_at = timestamp '2026-01-02', last_at = timestamp '2026-01-01'"),
        ("times_in_order", "update TABLE set first_at = timestamp '2026-01-02'"),
        ("events_folded", "update TABLE set event_count = 2 where user_index = 0 and item_index = 0"),
        ("everybody_there", "delete from indexed.items where item_index = 2"),
        ("active_stay", "delete from indexed.users where user_index = 1"),
        ("file_known", "update TABLE set first_file_id = 7"),
    ],
    "indexed.users": [
        ("index_once", "update TABLE set user_index = 1 where user_index = 0"),
        ("id_once", "update TABLE set user_id = 'u1' where user_index = 1"),
        ("indices_dense", "update TABLE set user_index = 3 where user_index = 2"),
        ("with_an_edge", "insert into TABLE values (3, 'u4')"),
        ("with_an_edge", "delete from TABLE where user_index = 2"),
        ("with_an_edge", "delete from indexed.interactions where user_index = 0"),
    ],
    "indexed.items": [
        ("index_once", "update TABLE set item_index = 1 where item_index = 0"),
        ("id_once", "update TABLE set item_id = 'i1' where item_index = 1"),
        ("indices_dense", "update TABLE set item_index = item_index + 1"),
        ("with_an_edge", "insert into TABLE values (6, 'i9')"),
        ("with_an_edge", "delete from TABLE where item_index = 5"),
    ],
    "indexed.strong_generalization": [
        ("role_of_part", "update TABLE set role = 'fit' where user_index = 1"),
        ("role_of_part", "update TABLE set role = 'fold_in' where user_index = 0"),
        ("user_in_one_part", "update TABLE set part = 'train', role = 'fit' where item_index = 0"),
        ("edges_agree", "insert into TABLE values (1, 1, 'validation', 'fold_in')"),
        ("edges_agree", "insert into TABLE values (1, 2, 'validation', 'dropped')"),
        ("edges_agree", "delete from TABLE where role = 'target'"),
        ("everybody_there", "delete from TABLE where user_index = 1"),
        ("everybody_there", "delete from TABLE where item_index = 2"),
        ("items_of_training", "update TABLE set role = 'target' where item_index = 2"),
        ("items_of_training", "update TABLE set role = 'dropped' where role = 'target'"),
        ("items_of_other_folds", "update TABLE set part = 'test', role = 'fit'"),
        ("part_by_hash", "update TABLE set part = 'test' where part = 'validation'"),
        ("parts_sized", "update TABLE set part = 'test' where part = 'validation'"),
        ("a_fifth_is_target", "update TABLE set role = 'target' where role = 'fold_in'"),
        ("targets_by_hash", "update TABLE set role = if(role = 'target', 'fold_in', 'target') where user_index = 1"),
        ("drawn_as_published", "select 1"),
    ],
    "indexed.leave_one_out": [
        ("held_out_by_hash", "update TABLE set role = if(item_index = 1, 'held_out', 'train') where user_index = 0"),
        ("one_held_out", "update TABLE set role = 'train' where user_index = 0"),
        ("one_held_out", "update TABLE set role = 'held_out' where user_index = 0"),
        ("edges_agree", "insert into TABLE values (0, 0, 'train')"),
        ("edges_agree", "insert into TABLE values (0, 8, 'train')"),
        ("edges_agree", "update TABLE set item_index = 8 where item_index = 2"),
        ("edges_agree", "delete from TABLE where item_index = 1"),
        ("edges_agree", "delete from TABLE where user_index = 1"),
        ("held_out_as_drawn", "select 1"),
    ],
    "indexed.observed_negatives": [
        ("pair_once", "insert into TABLE from indexed.observed_negatives"),
        ("liked_later_or_never", "insert into TABLE values (0, 0, null, null)"),
        ("only_where_asked", "select 1"),
        ("events_folded", "delete from indexed.observed_negatives"),
        ("events_folded", "update TABLE set user_index = 1"),
        ("events_folded", "delete from raw.events where value = 1"),
    ],
    "evaluation.dislike_by_degree": [
        ("error_in_range", f"{DISLIKE} error = 1.5"),
        ("edges_positive", f"{DISLIKE} edges = 0"),
        ("histogram_whole", f"{DISLIKE} edges = edges + 1"),
        ("error_agrees", f"{DISLIKE} error = 1 where edges = 1"),
        ("bins_disjoint", f"{DISLIKE} degree_high = 2"),
        ("edges_agree", "delete from TABLE where degree_low = 1"),
    ],
    "evaluation.considered": [
        ("metric_known", "update TABLE set metric = 'auc'"),
        ("metric_once", "insert into TABLE from evaluation.considered"),
        ("value_in_range", "update TABLE set value = 1.1"),
        ("value_in_range", "update TABLE set value = 'inf'"),
        ("standard_error_in_range", "update TABLE set standard_error = -1"),
        ("same_pairs", "update TABLE set likes = 1 where model = 'popularity'"),
        ("same_pairs", "update TABLE set dislikes = 0"),
        ("auc_possible", "update TABLE set likes = 3, value = 0.1 where metric = 'considered_auc'"),
        (
            "calibration_error_agrees",
            (
                f"insert into TABLE values ({RUN}, 'leave_one_out', 'random_graph', "
                "'considered_calibration_error', 0.1, null, 2, 3)"
            ),
        ),
        ("auc_error_possible", "update TABLE set standard_error = 0.9 where metric = 'considered_auc'"),
        ("popularity_beside", "delete from TABLE where model = 'popularity'"),
    ],
    "evaluation.calibration": [
        ("pairs_agree", "update evaluation.considered set dislikes = 9"),
        ("reference_known", "update TABLE set reference = 'x'"),
        ("bin_once", f"{TENTH} 'coin', 0.85, 0.95, 1, 0.9, 1, null)"),
        ("bin_once", f"{TENTH} 'coin', 0.5, 0.4, 1, 0.45, 1, null)"),
        ("bin_once", f"{TENTH} 'coin', -0.1, 0, 1, 0, 1, null)"),
        ("like_in_bin", f"{TENTH} 'coin', 0.4, 0.5, 1, 0.6, 1, null)"),
        ("like_in_bin", f"{TENTH} 'coin', 0.4, 0.5, 1, 'nan', 1, null)"),
        ("observed_in_range", f"{TENTH} 'coin', 0.4, 0.5, 1, 0.45, 1.1, null)"),
        ("standard_error_in_range", f"{TENTH} 'coin', 0.4, 0.5, 1, 0.45, 1, -0.1)"),
        ("standard_error_in_range", f"{TENTH} 'coin', 0.4, 0.5, 1, 0.45, 1, 'inf')"),
        ("error_possible", "update TABLE set standard_error = 0.1"),
        ("observed_measured", "update TABLE set observed = mean_like"),
        ("likes_counted", "update TABLE set observed = 0 where reference = 'sampled_negatives'"),
        ("references_agree", f"{TENTH} 'density_ratio', 0.9, 1, 6, 0.96, 0.4, 0.01)"),
        ("pairs_positive", f"{TENTH} 'coin', 0.4, 0.5, 0, 0.45, 1, null)"),
        ("pairs_agree", f"{TENTH} 'coin', 0.4, 0.5, 5, 0.45, 1, null)"),
        ("pairs_agree", "update TABLE set model = 'm'"),
        ("like_comes_true", "update TABLE set pairs = 100, standard_error = 0.01 where pairs = 5"),
    ],
    "indexed.cold_items": [
        ("edges_agree", "insert into TABLE values (0, 0, 'train')"),
        ("edges_agree", "insert into TABLE values (0, 8, 'train')"),
        ("edges_agree", "delete from TABLE where user_index = 1"),
        ("new_items_untrained", "update TABLE set role = 'new' where (user_index, item_index) = (0, 0)"),
        ("held_out_by_hash", "update TABLE set role = 'new' where item_index = 0"),
        ("held_out_by_hash", "update TABLE set role = 'held_out' where (user_index, item_index) = (0, 0)"),
        ("held_out_by_hash", "update TABLE set role = 'train' where role = 'held_out'"),
        ("held_out_by_hash", "update TABLE set role = 'dropped' where user_index = 0"),
    ],
    "indexed.next_events": [
        ("edges_agree", "insert into TABLE values (0, 0, 'dropped')"),
        ("edges_agree", "insert into TABLE values (0, 8, 'dropped')"),
        ("edges_agree", "delete from TABLE where user_index = 1"),
        ("edges_agree", "delete from indexed.next_events"),
        ("nothing_later_trains", "update TABLE set role = 'train' where item_index = 0"),
        (
            "nothing_later_trains",
            "update indexed.interactions set first_at = timestamp '2025-12-31' where item_index = 1",
        ),
        (
            "nothing_later_trains",
            (
                """update indexed.interactions set first_at = timestamp '2025-12-31 23:59' where user_index = 0 and
                item_index = 0;
        update indexed.interactions set first_at = timestamp '2026-01-01' where item_index = 0 and first_at is null;
        update TABLE set role = 'train' where item_index = 0"""
            ),
        ),
        ("nothing_later_trains", f"{CAME_AGAIN}; update TABLE set role = 'again' where {FIRST_EDGE}"),
    ],
    "indexed.given": [
        ("edges_agree", "insert into TABLE values (0, 0, 'train')"),
        ("edges_agree", "insert into TABLE values (0, 2, 'train')"),
        ("edges_agree", "insert into TABLE values (8, 0, 'train')"),
        ("edges_agree", "delete from TABLE where user_index = 1 and item_index = 0"),
        ("edges_agree", "delete from indexed.given"),
        ("edges_agree", "update TABLE set role = 'train' where role = 'test'"),
    ],
    "diagnostics.degrees": [
        ("side_known", "insert into TABLE values ('users', 1, 1)"),
        ("degree_once", "insert into TABLE values ('user', 5, 1)"),
        ("vertices_positive", "insert into TABLE values ('user', 9, 0)"),
        ("degree_positive", "insert into TABLE values ('user', 0, 9)"),
        ("vertices_recounted", "delete from TABLE where side = 'item'"),
        ("densities_agree", "insert into TABLE values ('user', 1, 1)"),
    ],
    "diagnostics.leakage": [
        ("protocol_once", "insert into TABLE values ('given', 2, 9, 4, 3.5, 1.5)"),
        ("protocol_known", "update TABLE set protocol = 'other' where protocol = 'given'"),
        ("shares_in_range", "update TABLE set future_edges = 9.5 where protocol = 'given'"),
        ("shares_in_range", "update TABLE set future_items = 'nan' where protocol = 'given'"),
        ("nothing_from_the_future", "update TABLE set future_edges = 1 where protocol = 'next_events'"),
    ],
    "diagnostics.list_hits": [
        ("run_once", "update TABLE set run_id = 'night 1'"),
        ("counts_agree", "update TABLE set users = 0 where hits = 0"),
        ("counts_agree", "update TABLE set likes = 2 where hits = 2"),
        ("counts_agree", "update TABLE set hits = 6 where hits = 2"),
        ("counts_agree", "update TABLE set length = 0 where hits = 2"),
        ("values_in_range", "update TABLE set recall = 1.1 where hits = 2"),
        ("values_in_range", "update TABLE set popularity_ndcg = -0.1"),
        ("values_in_range", "update TABLE set recall = 0.1 where hits = 0"),
        ("values_in_range", "update TABLE set ndcg = 0 where hits = 2"),
        ("values_in_range", "update TABLE set ndcg_gain_error = -0.1"),
    ],
    "diagnostics.power_law_fits": [
        ("side_known", "update TABLE set side = 'left'"),
        ("family_once", "update TABLE set side = 'user'"),
        ("families_complete", "delete from TABLE where side = 'user'"),
        ("support_agrees", LAW + "6, 6, -5, 12, 0.2, 0.5)"),
        ("support_agrees", LAW + "5, 3, -5, 12, 0.2, 0.5)"),
        ("laws_agree", "update TABLE set ks = 0.3 where side = 'user'"),
        ("laws_agree", "update TABLE set exponent = 1.5 where side = 'user'"),
        ("aic_agrees", LAW + "5, 6, -5, 12.5, 0.2, 0.5)"),
        ("ks_in_range", LAW + "1, 2, -5, 12, 1.2, 0.5)"),
        ("p_value_in_range", LAW + "1, 2, -5, 12, 0.2, 1.5)"),
        ("likelihood_finite", LAW + "1, 2, '-inf', 12, 0.2, 0.5)"),
        ("aic_finite", LAW + "1, 2, -5, 'nan', 0.2, 0.5)"),
    ],
    "operations.model_settings": [
        ("settled_once", "update TABLE set model = 'wmf'"),
        ("origin_known", SETTLED + "origin = 'guess' where model = 'slim'"),
        ("search_told", SETTLED + "origin = 'kept' where model = 'slim'"),
        ("search_told", SETTLED + "origin = 'given' where model = 'wmf'"),
        ("search_told", SETTLED + "key = null where model = 'wmf'"),
        (
            "settings_of_run",
            (
                f"insert into operations.runs values ({RUN}, 'backfill', 'ml-1m', timestamp '2026-01-02', null, "
                "'running', "
                """'{"models": {"slim": {"l2": 2}}}', '1'); update TABLE set settings = '{"l2": 1}'"""
            ),
        ),
        ("no_worse", SETTLED + "reached = 0.7 where model = 'wmf'"),
        ("numbers_finite", SETTLED + "seconds = 'inf' where model = 'wmf'"),
    ],
    "operations.model_fits": [
        ("fit_once", FIT + f"'m', 'd', 1, 1, 1); {FIT} 'm', 'e', 1, 1, 1)"),
        ("seconds_in_range", FIT + "'m', 'd', -1, 1, 1)"),
        ("digest_formed", FIT + "'m', 'g', 1, 1, 1)"),
        ("digest_of_one_model", FIT + "'m', 'abc', 1, 1, 1)"),
        ("something_saved", FIT + "'m', 'd', 1, 1, 0)"),
    ],
    "fitted_arrays": [
        ("arrays_there", "delete from fitted_arrays"),
        ("counts_not_null", "update TABLE set not_finite = null"),
        ("entries_finite", "update TABLE set not_finite = 1"),
    ],
    "evaluation.metrics": [
        ("protocol_known", f"update TABLE set protocol = 'x' where run_id = {RUN}"),
        ("metric_once", f"{METRIC} 'r', 1, 0, 1); {METRIC} 'r', 1, 0, 1)"),
        ("value_finite", f"{METRIC} 'r', 'nan', 0, 1)"),
        ("value_in_range", f"{METRIC} 'recall_of_all@20', 1.01, 0, 1)"),
        ("value_in_range", f"{METRIC} 'validation_ndcg@100', 'nan', 0, 1)"),
        ("value_in_range", f"{METRIC} 'median_rank', -0.1, 0, 1)"),
        ("standard_error_in_range", f"{METRIC} 'r', 1, -0.1, 1)"),
        ("standard_error_in_range", f"{METRIC} 'r', 1, 'inf', 1)"),
        ("mean_rank_agrees", "update TABLE set value = 0.79 where value = 0.8"),
        ("mean_rank_agrees", "update TABLE set users = 4 where value = 0.8"),
        ("mean_rank_agrees", "delete from evaluation.ranks_by_degree where side = 'item'"),
        ("standard_error_agrees", "update TABLE set standard_error = 0.4 where value = 0.8"),
        ("metrics_in_order", f"{METRIC} 'recall@20', 0.1, 0, 1); {METRIC} 'recall_of_all@20', 0.2, 0, 1)"),
        (
            "percentiles_agree",
            (
                f"insert into TABLE select {RUN}, 'given', 'm', 's', unnest(['mean_rank', 'rank_p05', 'rank_p25', "
                "'median_rank', 'rank_p75', 'rank_p95']), unnest([0.95, 0.1, 0.2, 0.3, 0.4, 0.5]), 0.01, 200"
            ),
        ),
        ("users_positive", f"{METRIC} 'r', 1, 0, 0)"),
        ("new_items_apart", f"{NEXT} 'ndcg@100_new_items', 0.5, 0, 3)"),
        ("new_items_apart", f"{COLD} 'ndcg@100', 0.5, 0, 2)"),
        ("new_items_apart", f"{COLD} 'ndcg@100', 0.5, null, 1); {COLD} 'ndcg@100_new_items', 0.5, null, 1)"),
        ("new_and_repeated_agree", f"{METRIC} 'ndcg@100', 0.5, 0, 3); {METRIC} 'ndcg@100_new', 0.5, 0, 3)"),
        ("new_and_repeated_agree", f"{NEXT} 'ndcg@100', 0.5, 0, 3); {NEXT} 'ndcg@100_new', 0.5, 0, 2)"),
        ("new_and_repeated_agree", f"{NEXT} 'ndcg@100', 0.5, 0, 3); {NEXT} 'ndcg@100_repeated', 0.5, 0, 4)"),
        (
            "not_worse_than_popularity",
            (
                "update TABLE set value = 0.75 where value = 0.9; "
                "update evaluation.comparisons set p_value = 0.049 where difference = -0.1"
            ),
        ),
    ],
    "evaluation.comparisons": [
        ("pair_once", f"{COMPARED} 'b', 's', 0, 0, 1, 9, null); {COMPARED} 'b', 's', 0, 0, 1, 9, null)"),
        ("pair_once", f"{COMPARED} 'a', 's', 0, 0, 1, 9, null)"),
        ("difference_finite", f"{COMPARED} 'b', 's', 'nan', 0, 1, 9, null)"),
        ("standard_error_in_range", f"{COMPARED} 'b', 's', 0, -1, 1, 9, null)"),
        ("p_value_agrees", "update TABLE set users = 100, p_value = 0.9"),
        ("standard_error_agrees", "update TABLE set standard_error = 0.03"),
        ("adjusted_p_value_agrees", "update TABLE set adjusted_p_value = 0.1 where p_value = 0.1"),
        ("adjusted_p_value_agrees", "update TABLE set adjusted_p_value = 1 where p_value is null"),
        ("p_value_in_range", f"{COMPARED} 'b', 's', 0, 0, 1.1, 9, null)"),
        ("difference_agrees", "update TABLE set difference = -difference"),
        ("difference_agrees", "update TABLE set users = 2"),
        ("difference_agrees", "delete from evaluation.metrics where value = 0.9"),
        ("pairs_complete", "delete from TABLE where difference = 0.2"),
        ("users_positive", f"{COMPARED} 'b', 's', 0, 0, 1, 0, null)"),
    ],
    "evaluation.ranks_by_degree": [
        ("side_known", f"{BIN} 'x', 1, 1, 1, 0.5, 0, 0, 0, 0, 0)"),
        ("mean_rank_in_range", f"{BIN} 'user', 1, 1, 1, 1.5, 0, 0, 0, 0, 0)"),
        ("percentiles_in_order", f"{BIN} 'user', 1, 1, 1, 0.5, 0.1, 0, 0.1, 0.1, 0.1)"),
        ("percentiles_in_order", f"{BIN} 'user', 1, 1, 1, 0.5, 0, 0, 0, 0, 1.1)"),
        ("percentiles_in_order", f"{BIN} 'user', 1, 1, 1, 0.5, -0.1, 0, 0, 0, 1)"),
        ("edges_positive", f"{BIN} 'user', 1, 1, 0, 0.5, 0, 0, 0, 0, 0)"),
        ("percentiles_agree", "update TABLE set p50 = 0.7 where edges = 1"),
        (
            "percentiles_add_up",
            (
                "update TABLE set edges = 1000 * edges; insert into evaluation.metrics "
                f"values ({RUN}, 'leave_one_out', 'popularity', 'score', 'median_rank', 0.01, null, 3000)"
            ),
        ),
        ("bins_disjoint", f"{BIN} 'user', 1, 4, 1, 0.5, 0, 0, 0, 0, 0); {BIN} 'user', 4, 9, 1, 0.5, 0, 0, 0, 0, 0)"),
        ("bins_disjoint", f"{BIN} 'user', 2, 1, 1, 0.5, 0, 0, 0, 0, 0)"),
    ],
    "evaluation.ranks_by_both_degrees": [
        ("mean_rank_in_range", f"{CELL} 4, 7, 2, 3, 1, 1.5)"),
        ("edges_positive", f"{CELL} 4, 7, 2, 3, 0, 0.5)"),
        ("bins_in_order", f"{CELL} 7, 4, 2, 3, 1, 0.5)"),
        ("bins_in_order", f"{CELL} 4, 7, -1, 3, 1, 0.5)"),
        ("cell_once", f"{CELL} 1, 1, 2, 3, 1, 0.5)"),
        ("margins_agree", f"{CELL} 4, 7, 2, 3, 1, 0.5)"),
        ("margins_agree", f"delete from TABLE where run_id = {RUN} and model = 'popularity'"),
        ("margins_agree", f"update TABLE set mean_rank = 0.7 where run_id = {RUN} and user_degree_low = 2"),
    ],
    "evaluation.like_by_degree": [
        ("error_in_range", f"{LIKE} error = 1.5"),
        ("edges_positive", f"{LIKE} edges = 0"),
        ("histogram_whole", f"{LIKE} histogram = histogram[1:19]"),
        ("histogram_whole", f"{LIKE} edges = edges + 1"),
        ("histogram_whole", f"{LIKE} histogram = list_concat([-1, 1]::bigint[], histogram[3:20])"),
        ("error_agrees", f"{LIKE} error = 1 where edges = 1"),
        ("bins_disjoint", f"{LIKE} degree_high = 2"),
        ("bins_disjoint", f"{LIKE} degree_high = 0"),
        ("edges_agree", "delete from TABLE where degree_low = 1"),
        ("edges_agree", f"{LIKE} model = 'm'"),
    ],
    "evaluation.beyond_accuracy": [
        ("protocol_known", "update TABLE set protocol = 'x'"),
        ("metric_once", f"{LISTS} 'coverage@20', 0.5, null, 3)"),
        ("value_in_range", f"{LISTS} 'gini@20', 1.1, null, 3)"),
        ("value_in_range", f"{LISTS} 'gini@20', 'nan', null, 3)"),
        ("value_in_range", f"{LISTS} 'popularity_lift@20', -1.1, null, 3)"),
        ("coverage_counted", "update TABLE set value = 0.33"),
        ("standard_error_in_range", f"{LISTS} 'x@20', 1, -0.1, 3)"),
        ("users_agree", f"{LISTS} 'gini@20', 0.5, null, 2)"),
        ("users_agree", f"{LISTS} 'popularity_lift@20', 0.5, null, 4)"),
        ("users_agree", "update TABLE set score = 'x'"),
        ("not_narrower_than_popularity", "update TABLE set value = 0.05 where model = 'random_graph'"),
    ],
    "evaluation.strata": [
        ("values_in_range", f"{STRATA} protocol = 'x'"),
        ("values_in_range", f"{STRATA} value = 1.1"),
        ("values_in_range", f"{STRATA} value = 'nan'"),
        ("values_in_range", f"{STRATA} standard_error = -0.1"),
        ("values_in_range", f"{STRATA} standard_error = 0.6"),
        ("values_in_range", f"{STRATA} least = 6 where stratum = 'high'"),
        ("values_in_range", f"{STRATA} users = 0"),
        ("values_in_range", f"{STRATA} targets = 0"),
        ("strata_disjoint", f"{STRATA} stratum = 'low' where stratum = 'high'"),
        ("strata_disjoint", f"{STRATA} strata = 'country' where strata = 'popularity'"),
        ("strata_disjoint", f"{STRATA} stratum = 'tall' where stratum = 'low'"),
        ("strata_disjoint", f"{STRATA} least = null where stratum = 'low'"),
        ("strata_disjoint", f"{STRATA} most = 5 where stratum = 'low'"),
        (
            "strata_disjoint",
            f"{STRATA} stratum = 'middle' where stratum = 'low'; {STRATA} least = 3 where stratum = 'high'",
        ),
        ("strata_add_up", f"{STRATA} value = value + 0.01 where stratum = 'low'"),
        ("strata_add_up", f"{STRATA} users = 3 where stratum = 'low'"),
        ("strata_add_up", "delete from TABLE where model = 'popularity'"),
        ("strata_add_up", "delete from TABLE where strata = 'activity' and model = 'popularity'"),
        ("strata_add_up", f"{STRATA} score = 'x' where model = 'popularity'"),
        ("strata_add_up", f"{STRATA} targets = 4 where strata = 'popularity'"),
        ("strata_add_up", f"{STRATA} targets = 2 where strata = 'popularity'"),
    ],
    "diagnostics.hidden_graph_ratios": [
        ("rate_positive", f"{RATIOS} r = 0 where r = 1"),
        ("item_once", f"{RATIOS} r = 1"),
        ("negatives_in_range", f"{RATIOS} negatives = 3 where positives = 1"),
        ("negatives_in_range", f"{RATIOS} negatives = -1"),
        ("positives_agree", f"{RATIOS} positives = 2 where positives = 3"),
        ("positives_agree", "delete from TABLE where r = 1 and item_index = 2"),
        ("negatives_counted", f"{RATIOS} negatives = 1 where item_index = 2"),
        ("negatives_spread", "insert into TABLE select 2, i, 4, if(i % 2 = 0, 40, 1) from range(100) as items(i)"),
        ("no_more_negatives", f"{RATIOS} negatives = 9"),
    ],
    "published.lists": [
        ("list_known", "update TABLE set list = 'best' where rank = 1"),
        ("ranks_consecutive", "update TABLE set rank = 4 where rank = 3"),
        ("ranks_consecutive", f"{LISTED}'popular', null, null, 4, 'i5', 3, 3, null, null)"),
        ("ranks_consecutive", f"{LISTED}'popular', null, 7, 2, 'i5', 3, 3, null, null)"),
        ("item_once", "update TABLE set item_id = 'i1' where rank = 2"),
        ("categories_of_items", f"{LISTED}'popular', 'b', null, 1, 'i1', 3, 3, null, null)"),
        ("categories_of_items", f"{LISTED}'popular', 'a', null, 1, 'i3', 3, 3, null, null)"),
        ("categories_of_items", f"{LISTED}'popular', '3', null, 1, 'i1', 3, 3, null, null)"),
        ("values_in_order", "update TABLE set value = 2 where rank = 1"),
        ("values_in_order", "update TABLE set list = 'new', value = -rank"),
        ("trends_significant", "update TABLE set p_value = 0.01 where rank = 1"),
        ("trends_significant", f"{LISTED}'trending', null, 7, 1, 'i5', 3, 3, 1, 0.051)"),
        ("trends_significant", f"{LISTED}'trending', null, 7, 1, 'i5', 3, 3, 3, 0.01)"),
        ("trends_significant", f"{LISTED}'trending', null, 7, 1, 'i5', 3, 3, null, 0.01)"),
        ("users_recounted", "update TABLE set users = 2 where rank = 3"),
        ("users_recounted", "update TABLE set item_id = 'i9' where rank = 3"),
        ("users_recounted", f"{DAYS}; {LISTED}'popular', null, 3, 1, 'i2', 3, 3, null, null)"),
        ("users_recounted", f"{DAYS}; {LISTED}'trending', null, 3, 1, 'i6', 3, 2, 1, 0.01)"),
        ("users_recounted", f"{LISTED}'new', null, 3, 1, 'i3', 3, 3, null, null)"),
        ("most_popular", "update TABLE set item_id = 'i3', users = 1 where rank = 3"),
        ("most_popular", "delete from TABLE where rank = 3"),
        ("first_event_recounted", f"{LISTED}'new', null, 3, 1, 'i3', 1, 1, null, null)"),
        (
            "first_event_recounted",
            (
                f"{DAYS}; update raw.events set occurred_at = date '2026-01-04'; "
                f"{LISTED}'new', null, 2, 1, 'i3', 2, 1, null, null)"
            ),
        ),
    ],
    "published.recommendations": [
        ("ranks_consecutive", "update TABLE set rank = 2 where user_id = 'u1'"),
        ("ranks_consecutive", "insert into TABLE values ('u1', 'i4', 3, 1, 1, 1, false, null, null, null)"),
        ("ranks_consecutive", "insert into TABLE values ('u1', 'i4', 1, 1, 1, 1, false, null, null, null)"),
        ("item_once", "insert into TABLE values ('u1', 'i3', 2, 1, 1, 1, false, null, null, null)"),
        ("score_finite", "update TABLE set score = 'inf'"),
        ("scores_fall", "insert into TABLE values ('u1', 'i4', 2, 0.6, 1, 1, false, null, null, null)"),
        ("everybody_served", "delete from TABLE where user_id = 'u1'"),
        ("like_in_range", "update TABLE set like_mean = 1.1"),
        ("like_sd_in_range", "update TABLE set like_sd = 'nan'"),
        ("like_sd_possible", "update TABLE set like_sd = 0"),
        ("like_sd_possible", "update TABLE set like_mean = 0.1, like_sd = 0.4"),
        (
            "scores_measured",
            (
                "insert into TABLE (user_id, item_id, rank, score, is_new) "
                "select 'u3', 'i' || i, i, -i, false from range(1, 30) as ranks(i)"
            ),
        ),
        ("nothing_seen", "update TABLE set item_id = 'i1'"),
        ("ids_curated", "update TABLE set user_id = 'u9'"),
        ("ids_curated", "update TABLE set item_id = 'i9'"),
        ("new_items_marked", "update TABLE set is_new = true"),
        ("new_items_marked", "update TABLE set is_new = null"),
        ("new_items_marked", "update TABLE set item_id = 'n1'"),
        ("reasons_liked", "update TABLE set item_id = 'n1', is_new = true, because = ['i3'] where user_id = 'u1'"),
        ("reasons_liked", "update TABLE set because = ['i1', 'i3'] where user_id = 'u1'"),
        ("like_filled", "update TABLE set like_mean = null where user_id = 'u1'"),
        ("like_filled", "update TABLE set like_sd = null where user_id = 'u1'"),
        ("reasons_given", "update TABLE set because = [] where user_id = 'u1'"),
        ("explicit_like_possible", "update TABLE set explicit_like_mean = 1.1 where user_id = 'u1'"),
        ("explicit_like_possible", "update TABLE set explicit_like_sd = 0 where user_id = 'u1'"),
        ("explicit_like_possible", "update TABLE set explicit_like_sd = null where user_id = 'u1'"),
    ],
    "published.placements": [
        ("ranks_consecutive", "update TABLE set rank = 2 where user_id = 'u1'"),
        (
            "ranks_consecutive",
            "insert into TABLE values ('home', 'u1', 'i4', 1, 0.4, null, null, false, null, null, null)",
        ),
        ("item_once", "insert into TABLE values ('home', 'u1', 'i3', 2, 0.4, null, null, false, null, null, null)"),
        ("score_finite", "update TABLE set score = 'inf'"),
        ("scores_fall", "insert into TABLE values ('home', 'u1', 'i4', 2, 0.6, null, null, false, null, null, null)"),
        ("nothing_seen", "update TABLE set item_id = 'i1'"),
        ("new_items_marked", "update TABLE set is_new = true"),
        ("reasons_liked", "update TABLE set because = ['i1', 'i3'] where user_id = 'u1'"),
        ("like_filled", "update TABLE set like_mean = null where user_id = 'u1'"),
        ("like_filled", "update TABLE set like_sd = null where user_id = 'u1'"),
        ("reasons_given", "update TABLE set because = [] where user_id = 'u1'"),
        ("explicit_like_possible", "update TABLE set explicit_like_mean = 1.1 where user_id = 'u1'"),
        ("explicit_like_possible", "update TABLE set explicit_like_sd = 0 where user_id = 'u1'"),
        ("explicit_like_possible", "update TABLE set explicit_like_sd = null where user_id = 'u1'"),
    ],
    "published.exploration": [
        ("policy_known", "update TABLE set policy = 'greedy'"),
        ("propensity_possible", "update TABLE set propensity = 0 where user_id = 'u1'"),
        ("propensity_possible", "update TABLE set propensity = 1.1 where user_id = 'u1'"),
        ("propensity_possible", "update TABLE set propensity = 'nan' where user_id = 'u1'"),
        ("list_of_user", "update TABLE set list_id = '2026-01-31/u9' where user_id = 'u1'"),
        ("list_of_user", "update TABLE set list_id = 'u1' where user_id = 'u1'"),
        ("ranks_consecutive", "update TABLE set rank = 2 where user_id = 'u1'"),
        ("item_once", "insert into TABLE values ('2026-01-31/u1', 'u1', 'thompson', 'i3', 2, 0.4, 0.3, 0.2, 0.1)"),
        ("scores_fall", "insert into TABLE values ('2026-01-31/u1', 'u1', 'thompson', 'i4', 2, 0.6, 0.3, 0.2, 0.1)"),
        ("nothing_seen", "update TABLE set item_id = 'i1' where user_id = 'u1'"),
        ("like_given", "update TABLE set like_sd = null where user_id = 'u1'"),
    ],
    "rule_breaches": [
        (rule, f"insert into TABLE values ('{rule}', 'home', 'u1', 'i3', 1)")
        for rule in (
            "eligible",
            "not_banned",
            "pinned_first",
            "max_per_category",
            "few_new",
            "not_event",
            "again_after_days",
            "list_full",
        )
    ],
}
CASES = [(table, rule, breach.replace("TABLE", table)) for table, rows in BREACHES.items() for rule, breach in rows]


# values of a stage under which a rule binds
BINDING = {
    "kind_known": {"kinds": ["order"]},
    "only_where_asked": {"explicit_negatives": False},
    "active_stay": {"min_user_edges": 5},
    "items_of_other_folds": {"fold_count": 2},
    "parts_sized": {"scheme": "liang2018", "held_out_users": 1},
    "drawn_as_published": {"scheme": "liang2018", "drawn_parts": "1"},
    "held_out_as_drawn": {"drawn_left_out": "1"},
}


def load_contract(table):
    return next(one for one in load() if one.table == table)


def find_broken_rules(connection, table, parameters):
    """Results of the rules of a table that do not hold, by rule."""
    results = check_contracts(connection, [load_contract(table)], parameters)
    return {result.rule: result for result in results if not result.success}


def test_every_rule_is_broken_below():
    assert {(one.table, rule.name) for one in load() for rule in one.rules} == {
        (table, rule) for table, rule, _ in CASES if rule != "columns"
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


@pytest.mark.parametrize(("table", "rule", "breach"), CASES, ids=[f"{t}-{r}-{i}" for i, (t, r, _) in enumerate(CASES)])
def test_a_bad_row_breaks_its_rule(good, parameters, table, rule, breach):
    good.execute(breach)
    declared = next((one for one in load_contract(table).rules if one.name == rule), None)
    alone = load_contract(table).model_copy(
        update={"rules": [declared] if declared else []}
    )  # the others would cost most of the time
    results = check_contracts(good, [alone], {**parameters, **BINDING.get(rule, {})})
    [result] = [result for result in results if result.rule == rule]
    assert not result.success
    if declared is not None:
        assert (result.severity, result.description) == (declared.severity, declared.description)
    assert result.observed
    if not rule.startswith(("not_empty", "arrays_there", "counts_not_null")):
        assert result.samples


@pytest.mark.parametrize(
    "table", [one.table for one in load() if "." in one.table and one.table != "indexed.interactions"]
)
def test_an_empty_table_keeps_its_contract(empty, parameters, table):
    asked = load_contract(table).model_copy(update={"may_be_empty": False})
    assert all(result.success for result in check_contracts(empty, [asked], parameters))


def test_a_table_that_is_not_there_breaks_its_contract(good, parameters):
    good.execute("drop table fitted_arrays")
    assert "fitted_arrays does not exist" in find_broken_rules(good, "fitted_arrays", parameters)["columns"].observed


def test_a_model_with_one_bin_may_have_just_the_share_that_it_predicts(good, parameters):
    table = "evaluation.calibration"
    good.execute(f"update {table} set observed = mean_like")
    assert "observed_measured" in find_broken_rules(good, table, parameters)
    good.execute(f"delete from {table} where like_low = 0.4")
    assert "observed_measured" not in find_broken_rules(good, table, parameters)


def test_lists_without_an_item_have_a_gini_index_of_nought(good, parameters):
    table = "evaluation.beyond_accuracy"
    good.execute(f"{LISTS} 'gini@20', 0, null, 3)")
    assert "coverage_counted" in find_broken_rules(good, table, parameters)
    good.execute(f"update {table} set value = 0 where starts_with(metric, 'coverage@')")
    assert "coverage_counted" not in find_broken_rules(good, table, parameters)


def test_few_users_and_items_have_large_shares_and_the_largest_is_named(good, parameters):
    assert "events_spread" not in find_broken_rules(good, "raw.events", parameters)  # each of three users has a third
    insert = "insert into raw.events select {}, 'i' || i, 5, null, 1, 1000 + i, null from range({}) as r(i)"
    good.execute(insert.format("'u' || i % 999", 400_000))
    good.execute(insert.format("'-1'", 100_100))
    [sample] = find_broken_rules(good, "raw.events", parameters)["events_spread"].samples
    assert sample == {"side": "user", "id": "-1", "events": 100_100, "share": 0.2}
    good.execute("delete from raw.events where user_id = '-1' and line_number < 1100")
    assert "events_spread" not in find_broken_rules(good, "raw.events", parameters)  # a fifth and no more


def test_bounds_that_a_data_set_does_not_declare_do_not_bind(good, parameters):
    good.execute("update raw.events set value = -700 where line_number = 1")
    assert find_broken_rules(good, "raw.events", {**parameters, "value_min": None}) == {}
    assert "value_in_range" in find_broken_rules(good, "raw.events", parameters)


def test_a_filtered_split_may_leave_out_users_and_items_but_no_edge_between_those_it_keeps(good, parameters):
    table, filtered = "indexed.strong_generalization", {**parameters, "min_item_edges": 2}
    good.execute("delete from indexed.strong_generalization where item_index = 2")
    assert find_broken_rules(good, table, filtered) == {}
    assert set(find_broken_rules(good, table, parameters)) == {"everybody_there"}
    good.execute("delete from indexed.strong_generalization where user_index = 2 and item_index = 1")
    assert find_broken_rules(good, table, filtered)["edges_agree"].samples == [
        {"user_index": 2, "item_index": 1, "times": 0, "curated": True, "one_role": None, "other_role": None}
    ]
    assert "everybody_there" in find_broken_rules(good, table, {**parameters, "min_user_edges": 6})


def test_an_edge_in_a_train_and_in_a_test_file_is_for_training(good, parameters):
    both = {**parameters, "train_files": "1,2"}
    assert set(find_broken_rules(good, "indexed.given", both)) == {"edges_agree"}
    good.execute("update indexed.given set role = 'train'")
    assert find_broken_rules(good, "indexed.given", both) == {}


def test_a_given_split_that_was_not_asked_for_is_empty(good, parameters):
    not_asked = {**parameters, "given": False, "train_files": "", "test_files": ""}
    assert find_broken_rules(good, "indexed.given", not_asked)["edges_agree"].observed == "16 rows"
    good.execute("delete from indexed.given")
    assert find_broken_rules(good, "indexed.given", not_asked) == {}


@pytest.mark.parametrize("unknown", ["train_files", "test_files"])
def test_roles_of_files_that_are_not_known_are_not_recounted(good, parameters, unknown):
    good.execute("update indexed.given set role = 'train'")
    given = {name: value for name, value in parameters.items() if name != unknown}
    assert find_broken_rules(good, "indexed.given", given) == {}


def test_an_edge_that_comes_again_is_found_again_only_where_seen_items_are(good, parameters):
    good.execute(CAME_AGAIN)
    cases = ("train", False, set()), ("again", True, set()), ("train", True, {"nothing_later_trains"})
    for role, seen_items, rules in cases:
        good.execute(f"update indexed.next_events set role = '{role}' where {FIRST_EDGE}")
        values = {**parameters, "seen_items": seen_items}
        assert find_broken_rules(good, "indexed.next_events", values).keys() == rules


def test_of_more_users_than_the_setting_those_with_the_lowest_hashes_have_an_edge_held_out(good, parameters):
    few = {**parameters, "max_evaluated_users": 1}
    users = "select user_index, user_id from indexed.leave_one_out join indexed.users using (user_index)"
    order = f"md5_number('{parameters['seed']}:leave_one_out:' || user_id)"
    found = good.execute(f"{users} group by user_index, user_id having count(*) > 1 order by {order}").fetchall()
    (first, _), *others = found
    assert others and set(find_broken_rules(good, "indexed.leave_one_out", few)) >= {"one_held_out"}
    changed = {**few, "drawn_left_out": None}
    good.execute(f"update indexed.leave_one_out set role = 'train' where user_index <> {first}")
    assert find_broken_rules(good, "indexed.leave_one_out", changed) == {}
    good.execute("update indexed.leave_one_out set role = 'train'")
    assert set(find_broken_rules(good, "indexed.leave_one_out", changed)) == {"one_held_out"}


def test_one_edge_in_place_of_another_is_seen(good, parameters):
    """As many edges as there should be: counts alone would not tell."""
    good.execute("update indexed.leave_one_out set item_index = 2 where user_index = 1 and item_index = 1")
    assert set(find_broken_rules(good, "indexed.leave_one_out", parameters)) == {"edges_agree"}


def test_recommendations_that_the_run_did_not_make_are_not_held_against_its_edges(good, parameters):
    good.execute("insert into indexed.interactions values (0, 2, 1, null, null, 1, 3, null)")
    assert set(find_broken_rules(good, "published.recommendations", parameters)) == {"nothing_seen", "everybody_served"}
    assert find_broken_rules(good, "published.recommendations", {**parameters, "recommendations_made": False}) == {}


def test_items_of_a_history_are_recommended_only_where_seen_items_are_included(good, parameters):
    parameters = {**parameters, "likes_given": False}
    table, included = "published.recommendations", {**parameters, "seen_items": True}
    assert set(find_broken_rules(good, table, included)) == {"everybody_served"}  # all six items are left to each user
    good.execute(
        "delete from published.recommendations; "
        "insert into published.recommendations (user_id, item_id, rank, score, is_new) "
        "select 'u' || u, 'i' || i, i, -i * i, false from range(1, 4) users(u), range(1, 7) items(i)"
    )
    assert find_broken_rules(good, table, included) == {}
    assert set(find_broken_rules(good, table, parameters)) == {"nothing_seen", "everybody_served"}


def test_under_rules_pinned_items_may_have_lower_scores_and_lists_may_be_short(good, parameters):
    table = "published.recommendations"
    good.execute(f"insert into {table} values ('u1', 'i4', 2, 0.6, 0.4, 0.1, false, ['i1'], null, null)")
    good.execute("delete from indexed.interactions where user_index = 0 and item_index in (3, 4)")
    assert set(find_broken_rules(good, table, parameters)) == {"scores_fall", "everybody_served"}
    assert find_broken_rules(good, table, {**parameters, "has_rules": True, "pinned": ["i3"]}) == {}


def test_the_count_is_of_all_rows_and_the_samples_are_some(good, parameters):
    good.execute("insert into raw.events select '', 'i1', 5, null, 1, i, null from range(1000) as lines(i)")
    result = find_broken_rules(good, "raw.events", parameters)["user_named"]
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
