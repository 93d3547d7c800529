-- One row per item shown of five sample users: their newest likes and the first of what is recommended to them. The users
-- are spread over the lengths of history, the same five each time.
with lengths as (
    select
        user_id,
        count(*) as likes
    from curated.interactions
    semi join published.recommendations using (user_id)
    group by user_id
), ordered as (
    select
        user_id,
        likes,
        row_number() over (order by likes, user_id) - 1 as place
    from lengths
), chosen as (
    select
        user_id,
        likes
    from ordered
    where place in (
        select floor(share * (select max(place) from ordered)) from unnest([0.1, 0.3, 0.5, 0.7, 0.9]) as shares (share)
    )
), shown as (
    select
        user_id,
        'likes' as list,
        row_number() over (
            partition by user_id order by first_at desc nulls last, first_file_id desc, first_line desc, item_index
        ) as place,
        item_id
    from curated.interactions
    semi join chosen using (user_id)
    qualify place <= $items
    union all
    select
        user_id,
        'recommended',
        rank,
        item_id
    from published.recommendations
    semi join chosen using (user_id)
    where rank <= $items
), popular as (
    select
        item_id,
        count(*) as users
    from curated.interactions
    semi join shown using (item_id)
    group by item_id
)
select
    user_id,
    likes,
    list,
    place,
    item_id,
    coalesce(users, 0) as users
from shown
join chosen using (user_id)
left join popular using (item_id)
order by likes, user_id, list, place
