-- night_figures: one row per side, with the exponent of its degrees' power law.
create or replace temp table night_figures as
select
    side || '_exponent' as figure,
    exponent as value,
    false as in_ratio
from diagnostics.power_law_fits
where family = 'power_law'
