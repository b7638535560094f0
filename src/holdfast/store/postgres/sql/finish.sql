-- Archives a job that was taken out of its state by someone other than its holder: outcome, attempt, event, count, keys. Its chain ends
-- with it; the waiters are the caller's to resolve.
CREATE OR REPLACE FUNCTION {schema}.finish(
    p_job {schema}.job, p_from text, p_attempt int, p_failures int, p_worker int, p_claimed_at timestamptz,
    p_event text, p_state text, p_code text, p_message text, p_traceback text, p_result text, p_actor text, p_now timestamptz
)
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_worker int := p_worker;
    v_claimed_at timestamptz := p_claimed_at;
BEGIN
    IF p_attempt > 0 AND p_from <> 'running' THEN
        SELECT a.worker, a.claimed_at INTO v_worker, v_claimed_at FROM attempt a WHERE a.job_id = p_job.id AND a.attempt = p_attempt;
    END IF;
    INSERT INTO archive (job_id, lane, state, finished_at, claimed_at, token, worker, attempt, failures, late, code, message, traceback,
        result, chain)
    VALUES (p_job.id, p_job.lane, p_state, p_now, v_claimed_at, NULL, v_worker, p_attempt, p_failures, false, p_code,
        p_message, p_traceback, p_result, p_job.chain_id);
    IF p_from = 'running' THEN
        -- no token: what the old holder still sends must be stale
        INSERT INTO attempt (job_id, attempt, event, claimed_at, ended_at, worker, late, token, code, message, traceback)
        VALUES (p_job.id, p_attempt, p_event, p_claimed_at, p_now, p_worker, false, NULL, p_code, p_message, NULL);
    END IF;
    INSERT INTO event (job_id, at, attempt, event, state, actor, detail)
    VALUES (p_job.id, p_now, p_attempt, p_event, p_state, p_actor, brief(concat_ws(': ', p_code, nullif(p_message, ''))));
    PERFORM count_move(p_job.lane, p_from, p_state);
    IF p_job.start_by IS NOT NULL THEN
        PERFORM clear_deadlines(ARRAY[p_job.id]);
    END IF;
    IF p_job.key IS NOT NULL OR p_job.chain_id <> p_job.id THEN
        PERFORM free_keys(ARRAY[p_job.id, p_job.chain_id]);
    END IF;
END
$$;
