-- Takes ready jobs from the given lanes, in their order, each from its mark on.
--
-- The lock sits inside the lateral, under an outer LIMIT and no outer sort: sorting after locking locks p_limit rows of every
-- lane, sorting before locking makes claimers fight over the same rows. `ready` rows are never updated, so that a ctid is a
-- safe address between the lock and the delete.
CREATE OR REPLACE FUNCTION {schema}.claim(p_worker int, p_lanes bigint[], p_marks bigint[], p_limit int, p_tasks text[])
RETURNS TABLE (
    entry bigint, place bigint, ready_at timestamptz, job_id uuid, token uuid, attempt int, failures int, task text, queue text,
    priority smallint, args text, policy text, lease_seconds float8, created_at timestamptz, claimed_at timestamptz,
    expires_at timestamptz, chain_id uuid, trace text, overdue boolean, blockers int
)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_paused bigint[];
    v_tids tid[];
BEGIN
    IF EXISTS (SELECT FROM queue WHERE paused_at IS NOT NULL) THEN
        v_paused := ARRAY(SELECT l.entry FROM queue q JOIN lane l ON l.queue = q.name WHERE q.paused_at IS NOT NULL);
    END IF;

    IF p_tasks IS NOT NULL THEN
        v_tids := claim_fifo(p_lanes, p_marks, p_limit, p_tasks, v_paused);
    ELSE
        v_tids := ARRAY(
            SELECT r.tid
            FROM unnest(p_lanes, p_marks) AS l(lane, mark)
            CROSS JOIN LATERAL (
                SELECT ready.ctid AS tid FROM ready
                WHERE ready.lane = l.lane AND ready.place >= l.mark
                ORDER BY ready.place LIMIT p_limit
                FOR UPDATE SKIP LOCKED
            ) r
            WHERE v_paused IS NULL OR abs(l.lane) <> ALL (v_paused)
            LIMIT p_limit
        );
    END IF;

    RETURN QUERY
    WITH gone AS (
        DELETE FROM ready WHERE ready.ctid = ANY (v_tids) RETURNING *
    ), held AS MATERIALIZED (
        SELECT g.lane AS entry, g.place, g.ready_at, g.job_id, gen_random_uuid() AS token, g.attempt + 1 AS attempt, g.failures,
            j.task, j.queue, j.priority, j.args, j.policy, j.lease_ms, j.created_at, j.chain_id, j.trace, j.lane,
            j.start_by, j.key IS NOT NULL AS keyed, coalesce(j.blockers, 0) AS blockers
        FROM gone g
        CROSS JOIN LATERAL (SELECT * FROM job WHERE job.id = g.job_id LIMIT 1) j
    ), leased AS (
        INSERT INTO lease (job_id, token, no, lane, place, claimed_at, expires_at, lease_ms, worker, attempt, failures, keyed, dated,
            chain)
        SELECT h.job_id, h.token, nextval('claim_no'), h.lane, h.place, v_now, v_now + h.lease_ms * interval '1 ms', h.lease_ms,
            p_worker, h.attempt, h.failures, h.keyed, h.start_by IS NOT NULL, h.chain_id
        FROM held h
    ), started AS (
        -- whoever is dropping what is overdue has locked this first, and deletes the row itself
        DELETE FROM deadline WHERE deadline.job_id = ANY (ARRAY(
            SELECT d.job_id FROM deadline d WHERE d.job_id = ANY (ARRAY(SELECT h.job_id FROM held h WHERE h.start_by IS NOT NULL))
            FOR UPDATE SKIP LOCKED
        ))
    ), counted AS (
        INSERT INTO tally (lane, ready, running) SELECT h.lane, -count(*), count(*) FROM held h GROUP BY h.lane
    )
    SELECT h.entry, h.place, h.ready_at, h.job_id, h.token, h.attempt, h.failures, h.task, h.queue, h.priority, h.args, h.policy,
        h.lease_ms / 1000.0::float8, h.created_at, v_now, v_now + h.lease_ms * interval '1 ms', h.chain_id, h.trace,
        coalesce(h.start_by <= v_now, false), h.blockers
    FROM held h;
END
$$;
