-- indexed.next_events: one row per curated edge as before; an edge may both train and be found again.
alter table if exists indexed.next_events alter role type enum('train', 'next', 'dropped', 'again');
