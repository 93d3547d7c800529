-- raw.parts: one row per line as before; the kind of event that it names, of data sets with [join] and [events].
alter table if exists raw.parts add column if not exists event varchar;
