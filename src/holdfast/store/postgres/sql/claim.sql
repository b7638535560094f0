-- Takes ready jobs from the given lanes, in their order, each from its mark on.
--
-- Answers a row for all jobs that share what jobs of a task mostly share, with an array for each thing in which they differ, and NULL for
-- arrays of what none of them has: a row for each job took twice the time to send and to read. Within a row the jobs stand in no order: that
-- is given by `entry`, as the caller named the lanes, and `place`.
--
-- The lock sits inside the lateral, under an outer LIMIT and no outer sort: sorting after locking locks p_limit rows of every
-- lane, sorting before locking makes claimers fight over the same rows. `ready` rows are never updated, so that a ctid is a
-- safe address between the lock and the delete. A row that has not moved since the enqueue says nothing that `job` does not say; of
-- the others (v_moved_*) a hash join brings it along, over an index scan of the ids.
--
-- The tokens of one claim share their random part, 90 bits, and end with the place: they are one holder's, and drawing each anew opens the
-- system's random source each time, where the server has no OpenSSL.
CREATE OR REPLACE FUNCTION {schema}.claim(p_worker int, p_lanes bigint[], p_marks bigint[], p_limit int, p_tasks text[], p_tids tid[] DEFAULT NULL)
RETURNS TABLE (
    entry bigint, task text, queue text, priority smallint, attempt int, failures int, policy text, lease_seconds float8,
    claimed_at timestamptz, expires_at timestamptz, last_ready_at timestamptz,
    places bigint[], ids uuid[], tokens uuid[], args text[], created_ats timestamptz[],
    chains uuid[], traces text[], overdue boolean[], blockers int[], ready_ats timestamptz[]
)
LANGUAGE plpgsql VOLATILE {hot} SET enable_nestloop TO off
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz := clock_timestamp();
    v_paused bigint[];
    v_tids tid[];
    v_ids uuid[];
    v_some_moved boolean;
    v_moved uuid[];
    v_moved_entries bigint[];
    v_moved_places bigint[];
    v_moved_ready_ats timestamptz[];
    v_moved_attempts int[];
    v_moved_failures int[];
    v_no bigint;
    v_secret text;
BEGIN
    IF EXISTS (SELECT FROM worker w WHERE w.no = p_worker AND w.disabled_at IS NOT NULL) THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM queue WHERE paused_at IS NOT NULL) THEN
        v_paused := paused_entries(p_lanes);
    END IF;

    IF p_tids IS NULL THEN
        v_paused := v_paused || limited_entries();
    END IF;

    IF p_tids IS NOT NULL THEN
        v_tids := p_tids;  -- claim_limited.sql has chosen and locked them
        SELECT array_agg(r.job_id), bool_or(r.moved) INTO v_ids, v_some_moved FROM ready r WHERE r.ctid = ANY (v_tids);
    ELSIF p_tasks IS NOT NULL THEN
        v_tids := claim_fifo(p_lanes, p_marks, p_limit, p_tasks, v_paused);
        v_now := clock_timestamp();  -- it may have waited for its turn: a lease begins when it is taken
        SELECT array_agg(r.job_id), bool_or(r.moved) INTO v_ids, v_some_moved FROM ready r WHERE r.ctid = ANY (v_tids);
    ELSE
        SELECT array_agg(r.tid), array_agg(r.job_id), bool_or(r.moved) INTO v_tids, v_ids, v_some_moved
        FROM (
            SELECT r.tid, r.job_id, r.moved
            FROM unnest(p_lanes, p_marks) AS l(lane, mark)
            CROSS JOIN LATERAL (
                SELECT ready.ctid AS tid, ready.job_id, ready.moved FROM ready
                WHERE ready.lane = l.lane AND ready.place >= l.mark
                ORDER BY ready.place LIMIT p_limit
                FOR UPDATE SKIP LOCKED
            ) r
            WHERE v_paused IS NULL OR abs(l.lane) <> ALL (v_paused)
            LIMIT p_limit
        ) r;
    END IF;
    IF v_ids IS NULL THEN
        RETURN;
    END IF;
    IF v_some_moved THEN
        SELECT array_agg(r.job_id), array_agg(r.lane), array_agg(r.place), array_agg(r.ready_at), array_agg(r.attempt), array_agg(r.failures)
        INTO v_moved, v_moved_entries, v_moved_places, v_moved_ready_ats, v_moved_attempts, v_moved_failures
        FROM ready r WHERE r.ctid = ANY (v_tids) AND r.moved;
    END IF;
    -- one number for all: the locks have given this transaction its id, and the reaper's marks rely on no more (decision 0007)
    v_no := nextval('claim_no');
    v_secret := left(replace(gen_random_uuid()::text, '-', ''), 24);

    RETURN QUERY
    WITH gone AS (
        DELETE FROM ready r WHERE r.ctid = ANY (v_tids)
    ), held AS MATERIALIZED (
        SELECT h.job_id, (v_secret || to_hex(268435456 | (h.place & 268435455)))::uuid AS token, h.lane, h.place, h.lease_ms, h.attempt,
            h.failures, h.keyed, h.start_by, h.chain_id, h.entry, h.ready_at, h.priority, h.task, h.queue, h.policy, h.args, h.created_at,
            h.trace, h.blockers,
            (h.start_by IS NOT NULL OR h.chain_id IS NOT NULL OR h.trace IS NOT NULL OR h.blockers IS NOT NULL) AS special
        FROM (
            SELECT j.id AS job_id, j.lane, coalesce(m.place, j.place) AS place, j.lease_ms, coalesce(m.attempt, 0) + 1 AS attempt,
                coalesce(m.failures, 0) AS failures, j.key IS NOT NULL AS keyed, j.start_by, j.chain_id, coalesce(m.entry, j.entry) AS entry,
                coalesce(m.ready_at, j.created_at) AS ready_at, j.priority, j.task, j.queue, j.policy, j.args, j.created_at, j.trace,
                j.blockers
            FROM job j
            LEFT JOIN unnest(v_moved, v_moved_entries, v_moved_places, v_moved_ready_ats, v_moved_attempts, v_moved_failures)
                AS m(job_id, entry, place, ready_at, attempt, failures) ON m.job_id = j.id
            WHERE j.id = ANY (v_ids)
        ) h
    ), leased AS (
        INSERT INTO lease (job_id, token, no, lane, place, claimed_at, expires_at, lease_ms, worker, attempt, failures, keyed, dated,
            chain)
        SELECT h.job_id, h.token, v_no, h.lane, h.place, v_now, v_now + h.lease_ms * interval '1 ms', h.lease_ms,
            p_worker, h.attempt, h.failures, h.keyed, h.start_by IS NOT NULL, h.chain_id
        FROM held h
    ), alike AS MATERIALIZED (
        SELECT h.lane, h.entry, h.priority, h.lease_ms, h.attempt, h.failures, h.policy, h.task, h.queue, count(*) AS jobs,
            array_agg(h.job_id) FILTER (WHERE h.start_by IS NOT NULL) AS dated, max(h.ready_at) AS last_ready_at,
            array_agg(h.place) AS places, array_agg(h.job_id) AS ids, array_agg(h.token) AS tokens, array_agg(h.args) AS args,
            array_agg(h.created_at) AS created_ats, array_agg(h.chain_id) FILTER (WHERE h.special) AS chains,
            array_agg(h.trace) FILTER (WHERE h.special) AS traces,
            array_agg(coalesce(h.start_by <= v_now, false)) FILTER (WHERE h.special) AS overdue,
            array_agg(coalesce(h.blockers, 0)) FILTER (WHERE h.special) AS blockers,
            array_agg(h.ready_at) FILTER (WHERE v_some_moved) AS ready_ats
        FROM held h
        GROUP BY h.lane, h.entry, h.priority, h.lease_ms, h.attempt, h.failures, h.policy, h.task, h.queue, h.special
    ), started AS (
        -- whoever is dropping what is overdue has locked this first, and deletes the row itself
        DELETE FROM deadline WHERE deadline.job_id = ANY (ARRAY(
            SELECT d.job_id FROM deadline d
            WHERE d.job_id = ANY (ARRAY(SELECT unnest(a.dated) FROM alike a WHERE a.dated IS NOT NULL))
            FOR UPDATE SKIP LOCKED
        ))
    ), counted AS (
        INSERT INTO tally (lane, ready, running) SELECT a.lane, -sum(a.jobs), sum(a.jobs) FROM alike a GROUP BY a.lane
    )
    SELECT a.entry, a.task, a.queue, a.priority, a.attempt, a.failures, a.policy, a.lease_ms / 1000.0::float8, v_now,
        v_now + a.lease_ms * interval '1 ms', a.last_ready_at, a.places, a.ids, a.tokens, a.args, a.created_ats, a.chains, a.traces,
        a.overdue, a.blockers, a.ready_ats
    FROM alike a;
END
$$;
