-- One row: digests of which user is in which part and of which edges are targets, as they were drawn.
select
    (select coalesce(sum(hash(user_index, part::varchar)::hugeint), 0)::varchar from user_parts) as drawn_parts,
    (select coalesce(sum(hash(user_index, item_index)::hugeint), 0)::varchar from targets) as drawn_targets
