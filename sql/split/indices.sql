-- One row per user (item) index of a relation of edges, in their order.
select distinct {side}_index from {edges} order by 1
