-- One row per edge of a relation of edges: its user, the column of its item, and a value, such as how many events it stands for.
select user_index, item_column, {value} from {edges}
