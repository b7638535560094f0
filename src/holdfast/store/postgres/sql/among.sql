-- Tells of each of p_ids, in their order, whether it is one of p_others: by a hash join, for `= ANY` searches the whole array for each.
CREATE OR REPLACE FUNCTION {schema}.among(p_ids uuid[], p_others uuid[])
RETURNS boolean[]
LANGUAGE sql STABLE {hot} {paired}
AS $$
    SELECT array_agg(o.id IS NOT NULL ORDER BY u.n)
    FROM unnest(p_ids) WITH ORDINALITY AS u(id, n)
    LEFT JOIN (SELECT DISTINCT a.id FROM unnest(p_others) AS a(id)) o ON o.id = u.id
$$;
