-- Forgets the permits of limits, whose rows the caller has locked, that no lease stands behind any more. Not each by itself: some are gathered. The mark
-- below which none is held is moved when it has fallen far behind, for a long transaction elsewhere keeps dead rows in the way of every count.
CREATE OR REPLACE FUNCTION {schema}.tidy_permits(p_ids bigint[])
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    r record;
    v_last bigint;
BEGIN
    FOR r IN
        SELECT l.id, l.base, c.dead, c.first
        FROM limits l
        CROSS JOIN LATERAL (
            SELECT count(*) FILTER (WHERE NOT h.held) AS dead, min(h.no) FILTER (WHERE h.held) AS first
            FROM (
                SELECT p.no, EXISTS (SELECT FROM lease WHERE lease.job_id = p.job_id AND lease.attempt = p.attempt OFFSET 0) AS held
                FROM permit p WHERE p.limit_id = l.id AND p.no >= l.base
            ) h
        ) c
        WHERE l.id = ANY (p_ids) AND c.dead > 16
    LOOP
        DELETE FROM permit p WHERE p.limit_id = r.id AND p.no >= r.base
            AND NOT EXISTS (SELECT FROM lease l WHERE l.job_id = p.job_id AND l.attempt = p.attempt OFFSET 0);
        IF r.first > r.base + 1000 THEN
            UPDATE limits SET base = r.first WHERE limits.id = r.id;
        END IF;
    END LOOP;
END
$$;
