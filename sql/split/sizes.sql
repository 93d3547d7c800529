-- One row: how many users and items the curated interactions number; nulls where there are none.
select max(user_index) + 1 as users, max(item_index) + 1 as items from curated.interactions
