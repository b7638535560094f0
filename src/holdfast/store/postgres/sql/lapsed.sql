-- What the reaper needs to know to decide about leases that have lapsed.
CREATE OR REPLACE FUNCTION {schema}.lapsed(p_ids uuid[])
RETURNS TABLE (
    job_id uuid, token uuid, attempt int, failures int, lease_ms bigint, expires_at timestamptz, cancel boolean, free boolean,
    worker uuid, task text, queue text, policy text
)
LANGUAGE sql STABLE {hot}
AS $$
    SELECT l.job_id, l.token, l.attempt, l.failures, l.lease_ms, l.expires_at, l.cancel IS NOT NULL, l.free, w.id, j.task, j.queue, j.policy
    FROM lease l
    CROSS JOIN LATERAL (SELECT * FROM job WHERE job.id = l.job_id LIMIT 1) j
    LEFT JOIN LATERAL (SELECT worker.id FROM worker WHERE worker.no = l.worker LIMIT 1) w ON true
    WHERE l.job_id = ANY (p_ids) AND l.expires_at <= clock_timestamp()
$$;
