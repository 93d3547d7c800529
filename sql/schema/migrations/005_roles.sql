-- indexed.strong_generalization, indexed.leave_one_out, indexed.next_events, indexed.given: one row per edge as before; parts
-- and roles, which were text, become enums.
alter table if exists indexed.strong_generalization alter part type enum('train', 'validation', 'test');
alter table if exists indexed.strong_generalization alter role type enum('fit', 'fold_in', 'target', 'dropped');
alter table if exists indexed.leave_one_out alter role type enum('train', 'held_out');
alter table if exists indexed.next_events alter role type enum('train', 'next', 'dropped');
alter table if exists indexed.given alter role type enum('train', 'test');
