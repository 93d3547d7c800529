-- One row: how many users and items the curated interactions number.
select
    (select count(*) from indexed.users) as users,
    (select count(*) from indexed.items) as items
