-- One row per side and degree that occurs.
select
    side,
    degree,
    vertices
from diagnostics.degrees
order by side desc, degree
