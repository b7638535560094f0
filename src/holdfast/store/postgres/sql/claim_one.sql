-- Takes the first ready job of the given lanes, each from its mark on. What claim.sql does for many, statement by statement: its plans take
-- longer to start than these to run. Not for fifo lanes.
CREATE OR REPLACE FUNCTION {schema}.claim_one(
    p_worker int, p_lanes bigint[], p_marks bigint[],
    OUT entry bigint, OUT place bigint, OUT ready_at timestamptz,
    OUT job_id uuid, OUT token uuid, OUT attempt int, OUT failures int, OUT task text, OUT queue text, OUT priority smallint, OUT args text,
    OUT policy text, OUT lease_seconds float8, OUT created_at timestamptz, OUT claimed_at timestamptz, OUT expires_at timestamptz,
    OUT chain uuid, OUT trace text, OUT overdue boolean, OUT blockers int
)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_lane bigint;
    v_lease_ms bigint;
    v_start_by timestamptz;
    v_keyed boolean;
    v_limited bigint[] := limited_entries();
BEGIN
    IF EXISTS (SELECT FROM worker w WHERE w.no = p_worker AND w.disabled_at IS NOT NULL) THEN
        RETURN;
    END IF;
    claimed_at := clock_timestamp();
    FOR i IN 1 .. cardinality(p_lanes) LOOP
        CONTINUE WHEN abs(p_lanes[i]) = ANY (v_limited);
        DELETE FROM ready r WHERE r.ctid = (
            SELECT n.ctid FROM ready n
            WHERE n.lane = p_lanes[i] AND n.place >= p_marks[i] AND NOT EXISTS (
                SELECT FROM queue q WHERE q.paused_at IS NOT NULL
                -- OFFSET keeps this from becoming a join, which might read all lanes first
                AND EXISTS (SELECT FROM lane l WHERE l.queue = q.name AND l.entry = abs(p_lanes[i]) OFFSET 0)
            )
            ORDER BY n.place LIMIT 1
            FOR UPDATE SKIP LOCKED
        )
        RETURNING r.lane, r.place, r.ready_at, r.job_id, r.attempt + 1, r.failures INTO entry, place, ready_at, job_id, attempt, failures;
        EXIT WHEN FOUND;
    END LOOP;
    IF job_id IS NULL THEN
        RETURN;
    END IF;

    SELECT j.lane, j.lease_ms, j.start_by, j.key IS NOT NULL, j.task, j.queue, j.priority, j.args, j.policy, j.created_at, j.chain_id, j.trace,
        coalesce(j.blockers, 0)
    INTO v_lane, v_lease_ms, v_start_by, v_keyed, task, queue, priority, args, policy, created_at, chain, trace, blockers
    FROM job j WHERE j.id = claim_one.job_id;
    token := gen_random_uuid();
    lease_seconds := v_lease_ms / 1000.0::float8;
    expires_at := claimed_at + v_lease_ms * interval '1 ms';
    overdue := coalesce(v_start_by <= claimed_at, false);

    INSERT INTO lease (job_id, token, no, lane, place, claimed_at, expires_at, lease_ms, worker, attempt, failures, keyed, dated, chain)
    VALUES (claim_one.job_id, claim_one.token, nextval('claim_no'), v_lane, claim_one.place, claim_one.claimed_at, claim_one.expires_at,
        v_lease_ms, p_worker, claim_one.attempt, claim_one.failures, v_keyed, v_start_by IS NOT NULL, claim_one.chain);
    INSERT INTO tally (lane, ready, running) VALUES (v_lane, -1, 1);
    IF v_start_by IS NOT NULL THEN
        -- whoever is dropping what is overdue has locked this first, and deletes the row itself
        DELETE FROM deadline WHERE deadline.job_id = (
            SELECT d.job_id FROM deadline d WHERE d.job_id = claim_one.job_id FOR UPDATE SKIP LOCKED
        );
    END IF;
END
$$;
