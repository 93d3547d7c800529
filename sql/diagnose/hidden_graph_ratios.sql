-- One row per item of a hidden graph sampled at rate r.
insert into diagnostics.hidden_graph_ratios
select $r, (row_number() over ())::integer - 1, positives, negatives from sampled
