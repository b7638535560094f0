-- Those of these lanes, and fronts, whose queue is paused. By what is asked for: of a queue there may be a million lanes of keys.
CREATE OR REPLACE FUNCTION {schema}.paused_entries(p_lanes bigint[])
RETURNS bigint[]
LANGUAGE sql STABLE {hot}
AS $$
    SELECT ARRAY(
        SELECT l.entry
        FROM unnest(p_lanes) AS n(lane)
        CROSS JOIN LATERAL (SELECT x.entry, x.queue FROM lane x WHERE x.entry = abs(n.lane) AND NOT x.resting LIMIT 1) l
        WHERE EXISTS (SELECT FROM queue q WHERE q.name = l.queue AND q.paused_at IS NOT NULL OFFSET 0)
    )
$$;
