-- Returns exact counts per lane: the latest totals plus what has happened since.
CREATE OR REPLACE FUNCTION {schema}.counts()
RETURNS TABLE (
    lane bigint, blocked bigint, scheduled bigint, ready bigint, running bigint, succeeded bigint, failed bigint, canceled bigint
)
LANGUAGE sql STABLE {hot}
AS $$
    WITH latest AS (
        SELECT generation, CASE WHEN upto <= pg_snapshot_xmin(pg_current_snapshot()) THEN upto ELSE '0'::xid8 END AS upto
        FROM total ORDER BY generation DESC LIMIT 1
    )
    SELECT s.lane, sum(s.blocked)::bigint, sum(s.scheduled)::bigint, sum(s.ready)::bigint, sum(s.running)::bigint,
        sum(s.succeeded)::bigint, sum(s.failed)::bigint, sum(s.canceled)::bigint
    FROM (
        SELECT t.lane, t.blocked, t.scheduled, t.ready, t.running, t.succeeded, t.failed, t.canceled
        FROM total t WHERE t.generation = (SELECT l.generation FROM latest l)
        UNION ALL
        SELECT t.lane, t.blocked, t.scheduled, t.ready, t.running, t.succeeded, t.failed, t.canceled
        FROM tally t WHERE t.xid >= coalesce((SELECT l.upto FROM latest l), '0'::xid8)
    ) s
    GROUP BY s.lane
$$;
