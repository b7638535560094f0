-- The leases claimed from p_base on, and those of p_ids, so that a reaper need not read the whole table again and again.
CREATE OR REPLACE FUNCTION {schema}.leases(p_base bigint, p_ids uuid[])
RETURNS TABLE (job_id uuid, no bigint, expires_at timestamptz, lease_ms bigint)
LANGUAGE sql STABLE {hot}
AS $$
    SELECT l.job_id, l.no, l.expires_at, l.lease_ms FROM lease l WHERE l.no >= p_base
    UNION ALL
    SELECT l.job_id, l.no, l.expires_at, l.lease_ms FROM lease l WHERE l.job_id = ANY (p_ids) AND l.no < p_base
$$;
