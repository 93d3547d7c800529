-- One row per fit behind what a run publishes: of its own, and of the run whose evaluation it publishes.
select distinct model, digest
from operations.model_fits
where run_id in ($run_id, $evaluated)
order by all
