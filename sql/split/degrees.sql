-- One row per user of a relation of edges, by index: how many it has.
select user_index, count(*) as edges from {edges} group by user_index order by user_index
