-- One row per user, in the order of their indices: the text that the id of an item goes behind, for a draw of the edge by hash.
select $seed || ':leave_one_out:' || user_id || ':' as stem from indexed.users order by user_index
