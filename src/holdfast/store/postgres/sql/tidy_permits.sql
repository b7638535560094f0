-- Forgets the permits of limits, whose rows the caller has locked, that no lease stands behind any more. p_firsts: the first that is held, as just counted.
-- The mark below which none is held is moved when it has fallen far behind, for a long transaction elsewhere keeps dead rows in the way of every count.
CREATE OR REPLACE FUNCTION {schema}.tidy_permits(p_ids bigint[], p_firsts bigint[])
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
BEGIN
    DELETE FROM permit WHERE permit.ctid = ANY (ARRAY(
        SELECT p.tid FROM unnest(p_ids) AS u(id)
        CROSS JOIN LATERAL (SELECT l.base FROM limits l WHERE l.id = u.id LIMIT 1) l
        CROSS JOIN LATERAL (
            SELECT permit.ctid AS tid FROM permit
            WHERE permit.limit_id = u.id AND permit.no >= l.base
                AND NOT EXISTS (SELECT FROM lease WHERE lease.job_id = permit.job_id AND lease.attempt = permit.attempt OFFSET 0)
        ) p
    ));
    UPDATE limits l SET base = f.first
    FROM unnest(p_ids, p_firsts) AS f(id, first) WHERE l.id = f.id AND f.first > l.base + 1000 AND l.id = ANY (p_ids);
END
$$;
