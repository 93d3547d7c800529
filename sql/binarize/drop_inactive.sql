-- One row per edge that goes: those of every {side} that has fewer than $least of them.
delete from edges
where {side}_code in (
    select {side}_code from edges group by {side}_code having count(*) < $least
)
