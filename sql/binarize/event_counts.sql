-- One row per user that has a like, in the order of their codes: how many events are likes.
select events from user_codes order by code
