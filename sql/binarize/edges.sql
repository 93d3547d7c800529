-- edges: one row per (user, item) that has a like, by their codes: repeats folded into one edge.
create or replace temp table edges as select * from folded
