-- One row: digests of which user is in which part and of which edges are targets, as they were drawn.
with users as (
    select distinct user_id, user_index from active_edges
)
select
    (
        select coalesce(sum(hash(user_id, part)::hugeint), 0)::varchar
        from user_parts join users using (user_index)
    ) as drawn_parts,
    (
        select coalesce(sum(hash(user_id, item_id)::hugeint), 0)::varchar
        from targets join active_edges using (user_index, item_index)
    ) as drawn_targets
