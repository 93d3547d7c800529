-- One row: a digest of the ids behind the first indices of either side, which tells whether they still mean the same.
with users as (
    select distinct user_id, user_index from curated.interactions where user_index < $users
), items as (
    select distinct item_id, item_index from curated.interactions where item_index < $items
)
select md5(concat(
    (select string_agg(user_id, chr(10) order by user_index) from users),
    chr(0),
    (select string_agg(item_id, chr(10) order by item_index) from items)
))
