-- indexed.{protocol}: one row per edge of {roles}, by index.
insert into indexed.{protocol} by name
select {columns} from {roles}
