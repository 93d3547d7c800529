-- raw.events: one row per line as before; of a log with kinds of events, which one.
alter table if exists raw.events add column if not exists event varchar;
-- indexed.interactions: one row per edge as before; of a log whose values add up, their sum.
alter table if exists indexed.interactions add column if not exists weight double;
