-- One row per protocol, model, score and metric of the run.
from evaluation_of_run
order by all
