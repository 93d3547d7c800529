-- One row: how many rows of a table meet each of its conditions.
select {counts} from {batch}
