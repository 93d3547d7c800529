-- One row per side and law fitted to its degrees, the best by AIC first.
select
    side,
    family,
    exponent,
    cutoff,
    d_min,
    d_max,
    log_likelihood,
    aic,
    ks,
    p_value
from diagnostics.power_law_fits
order by side desc, aic
