-- One row: the fields of one line, some of them in quotes, as RFC 4180 has them; null where quotes do not pair.
case
    when not contains(line, '"') then string_split(line, {delimiter})
    when list_sum(list_transform(
        regexp_extract_all({delimiter} || line, {pattern}, 1), lambda f: len(f) + 1
    )) = len(line) + 1
    then list_transform(
        regexp_extract_all({delimiter} || line, {pattern}, 1),
        lambda f: if(starts_with(f, '"'), replace(f[2:-2], '""', '"'), f)
    )
end
