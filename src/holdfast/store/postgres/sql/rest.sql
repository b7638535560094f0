-- Has the lanes of keys in which nothing waits looked at no more, until something enters them (rouse.sql): there may be a million keys, of which a few have
-- work. Who enters something locks the lane's row, so that either he is seen here or he sees what was done here. And forgets keys whose limits nobody uses.
CREATE OR REPLACE FUNCTION {schema}.rest()
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_tids tid[];
    v_ids bigint[];
BEGIN
    {read_committed}
    v_tids := ARRAY(SELECT l.ctid FROM lane l WHERE l.keyed AND NOT l.resting FOR UPDATE SKIP LOCKED);
    v_tids := ARRAY(
        SELECT l.ctid FROM lane l
        WHERE l.ctid = ANY (v_tids)
            AND NOT EXISTS (SELECT FROM ready r WHERE r.lane = l.entry OFFSET 0) AND NOT EXISTS (SELECT FROM ready r WHERE r.lane = -l.entry OFFSET 0)
    );
    -- one row of each lane stays, for those of its jobs that will come back
    DELETE FROM lane l WHERE l.ctid = ANY (v_tids) AND EXISTS (SELECT FROM lane o WHERE o.id = l.id AND o.entry = l.entry AND o.ctid < l.ctid OFFSET 0);
    UPDATE lane l SET resting = true WHERE l.ctid = ANY (v_tids);

    v_ids := ARRAY(
        SELECT l.id FROM limits l
        WHERE l.kind = 'key' AND l.key IS NOT NULL AND l.override IS NULL AND coalesce(l.filled_at, '-infinity') < clock_timestamp() - interval '7 days'
            AND NOT EXISTS (
                SELECT FROM permit p WHERE p.limit_id = l.id AND EXISTS (SELECT FROM lease e WHERE e.job_id = p.job_id AND e.attempt = p.attempt OFFSET 0)
                OFFSET 0
            )
        LIMIT 10000
        FOR UPDATE SKIP LOCKED
    );
    -- a permit is seen with its lease or not at all: what none stands behind counts for nothing, whoever claims meanwhile
    DELETE FROM permit p WHERE NOT EXISTS (SELECT FROM lease e WHERE e.job_id = p.job_id AND e.attempt = p.attempt OFFSET 0);
    DELETE FROM limits l WHERE l.id = ANY (v_ids) AND NOT EXISTS (SELECT FROM permit p WHERE p.limit_id = l.id OFFSET 0);
END
$$;
