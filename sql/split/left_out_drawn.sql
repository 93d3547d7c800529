-- One row: a digest of which edges are left out, as they were drawn.
select coalesce(sum(hash(user_index, item_index)::hugeint), 0)::varchar as drawn_left_out from left_out
