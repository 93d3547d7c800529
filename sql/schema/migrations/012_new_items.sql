-- published.recommendations: one row per user and rank as before; which items nobody liked, and what they resemble.
alter table if exists published.recommendations add column if not exists is_new boolean;
alter table if exists published.recommendations add column if not exists because varchar[];
