-- The leases claimed from p_base on, and those of p_ids, so that a reaper need not read the whole table again and again.
-- "+ 0" keeps the second part off the index on no: once the table has been analyzed while it was nearly empty, the planner
-- takes that for the better way to a handful of ids, and walks every dead row below the base.
CREATE OR REPLACE FUNCTION {schema}.leases(p_base bigint, p_ids uuid[])
RETURNS TABLE (job_id uuid, no bigint, expires_at timestamptz, lease_ms bigint)
LANGUAGE sql STABLE {hot}
AS $$
    SELECT l.job_id, l.no, l.expires_at, l.lease_ms FROM lease l WHERE l.no >= p_base
    UNION ALL
    SELECT l.job_id, l.no, l.expires_at, l.lease_ms FROM lease l WHERE l.job_id = ANY (p_ids) AND l.no + 0 < p_base
$$;
