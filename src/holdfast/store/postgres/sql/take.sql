-- Takes one job out of the state it is in, if that is one of p_from, and tells where it was; NULL state: no such job.
--
-- A job may move while it is looked for. The tables are asked in the order jobs move through them, each with a fresh view and
-- waiting for whoever has the row in hand, and again until the job is found somewhere.
CREATE OR REPLACE FUNCTION {schema}.take(
    p_job {schema}.job, p_from text[],
    OUT state text, OUT taken boolean, OUT attempt int, OUT failures int, OUT worker int, OUT claimed_at timestamptz, OUT run_at timestamptz
)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_id uuid := p_job.id;
BEGIN
    taken := true;
    attempt := 0;
    failures := 0;
    FOR pass IN 1..1000 LOOP
        IF 'blocked' = ANY (p_from) THEN
            DELETE FROM blocked b WHERE b.job_id = v_id RETURNING 'blocked', b.run_at INTO state, run_at;
            EXIT WHEN FOUND;
        END IF;
        IF 'scheduled' = ANY (p_from) THEN
            DELETE FROM scheduled s WHERE s.job_id = v_id
            RETURNING 'scheduled', s.attempt, s.failures, s.run_at INTO state, attempt, failures, run_at;
            EXIT WHEN FOUND;
        END IF;
        IF 'ready' = ANY (p_from) THEN
            DELETE FROM ready r WHERE r.lane = p_job.entry AND r.place = p_job.place AND r.job_id = v_id
            RETURNING 'ready', r.attempt, r.failures, r.ready_at INTO state, attempt, failures, run_at;
            EXIT WHEN FOUND;
            DELETE FROM ready r WHERE r.moved AND r.job_id = v_id
            RETURNING 'ready', r.attempt, r.failures, r.ready_at INTO state, attempt, failures, run_at;
            EXIT WHEN FOUND;
        END IF;
        IF 'running' = ANY (p_from) THEN
            DELETE FROM lease l WHERE l.job_id = v_id
            RETURNING 'running', l.attempt, l.failures, l.worker, l.claimed_at INTO state, attempt, failures, worker, claimed_at;
            EXIT WHEN FOUND;
        ELSE
            SELECT 'running', false INTO state, taken FROM lease l WHERE l.job_id = v_id;
            EXIT WHEN FOUND;
        END IF;
        IF p_from && ARRAY[{terminal}] THEN
            DELETE FROM archive a WHERE a.job_id = v_id
            RETURNING a.state, a.attempt, a.failures, a.worker, a.claimed_at INTO state, attempt, failures, worker, claimed_at;
            EXIT WHEN FOUND;
        ELSE
            SELECT a.state, false INTO state, taken FROM archive a WHERE a.job_id = v_id;
            EXIT WHEN FOUND;
        END IF;
        taken := true;
        IF NOT EXISTS (SELECT FROM job WHERE job.id = v_id) THEN
            state := NULL;
            taken := false;
            RETURN;
        END IF;
        -- it may wait in a state that was not asked for
        SELECT w.state, false INTO state, taken FROM where_is(p_job) w WHERE w.state <> ALL (p_from);
        EXIT WHEN FOUND;
        taken := true;
    END LOOP;
    IF state IS NULL THEN
        RAISE EXCEPTION 'job % is in no state', v_id;
    END IF;
END
$$;
