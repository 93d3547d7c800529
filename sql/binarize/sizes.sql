-- One row: how many edges, users and items the observed graph has.
select
    (select count(*) from indexed.interactions) as edges,
    (select count(*) from indexed.users) as users,
    (select count(*) from indexed.items) as items
