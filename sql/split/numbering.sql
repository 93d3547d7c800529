-- One row: a digest of the ids behind the first indices of either side, which tells whether they still mean the same.
select md5(concat(
    (select string_agg(user_id, chr(10) order by user_index) from indexed.users where user_index < $users),
    chr(0),
    (select string_agg(item_id, chr(10) order by item_index) from indexed.items where item_index < $items)
))
