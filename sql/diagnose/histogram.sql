-- One row per degree that occurs on one side: how many of its vertices have it.
select degree, vertices from diagnostics.degrees where side = $side order by degree
