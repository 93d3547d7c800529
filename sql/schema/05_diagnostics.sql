-- diagnostics.degrees: one row per side and degree that occurs in the observed graph.
create schema if not exists diagnostics;
create table if not exists diagnostics.degrees (
    side varchar not null,
    degree bigint not null,
    vertices bigint not null
);
-- diagnostics.power_law_fits: one row per side and family of laws fitted to its degrees.
create table if not exists diagnostics.power_law_fits (
    side varchar not null,
    family varchar not null,
    exponent double,
    cutoff double,
    d_min bigint not null,
    d_max bigint not null,
    log_likelihood double not null,
    aic double not null,
    ks double not null,
    p_value double
);
-- diagnostics.hidden_graph_ratios: one row per rate r and item of a hidden graph sampled around the observed one.
create table if not exists diagnostics.hidden_graph_ratios (
    r double not null,
    item_index integer not null,
    positives bigint not null,
    negatives bigint not null
);
-- diagnostics.leakage: one row per protocol whose targets have times: what its models could learn from days after a target's.
create table if not exists diagnostics.leakage (
    protocol varchar not null,
    targets bigint not null,
    edges bigint not null,
    items bigint not null,
    future_edges double not null,
    future_items double not null
);
-- diagnostics.list_hits: one row per run whose lists were published, and what they found of later likes.
create table if not exists diagnostics.list_hits (
    run_id varchar not null, -- the run that made the lists
    made_at timestamp not null,
    length integer not null, -- of the longest list, k
    users bigint not null, -- with a list and a new like
    likes bigint not null, -- their later likes
    hits bigint not null, -- of these in the lists
    recall double not null, -- mean over users of hits / min(k, later likes)
    recall_error double not null,
    ndcg double not null, -- mean over users, of the first k
    ndcg_error double not null,
    popularity_recall double not null, -- of lists of the items most liked then, without each user's own
    popularity_ndcg double not null,
    ndcg_gain_error double not null -- standard error of ndcg - popularity_ndcg, paired over users
);
