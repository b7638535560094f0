-- Brings terminal jobs back as ready, at the back of their lane, with their budget restored and no `start_by`; in the order
-- given, for keys.
CREATE OR REPLACE FUNCTION {schema}.reopen(p_ids uuid[], p_from text[], p_actor text)
RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_worker text;
    j job;
    a archive;
BEGIN
    PERFORM pg_current_xact_id();
    v_now := clock_timestamp();
    FOR j IN SELECT * FROM job WHERE job.id = ANY (p_ids) ORDER BY array_position(p_ids, job.id) LOOP
        job_id := j.id;
        SELECT * INTO a FROM archive WHERE archive.job_id = j.id AND archive.state = ANY (p_from) FOR UPDATE;
        IF NOT FOUND THEN
            CONTINUE WHEN NOT EXISTS (SELECT FROM job WHERE job.id = j.id);
            answer := 'refused';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF j.key IS NOT NULL AND NOT j.windowed THEN
            INSERT INTO unique_key (scope, key, job_id) VALUES (j.scope, j.key, j.id)
            ON CONFLICT (scope, key) DO UPDATE SET job_id = excluded.job_id, until = NULL
            WHERE unique_key.job_id = excluded.job_id OR unique_key.until <= v_now;
            IF NOT FOUND THEN
                answer := 'key_taken';
                RETURN NEXT;
                CONTINUE;
            END IF;
        END IF;
        DELETE FROM archive WHERE archive.job_id = j.id;
        IF a.state = 'succeeded' AND a.token IS NOT NULL THEN
            -- the archive row said it; from now on the records must
            INSERT INTO attempt (job_id, attempt, event, claimed_at, ended_at, worker, late, token)
            VALUES (j.id, a.attempt, 'succeeded', a.claimed_at, a.finished_at, a.worker, a.late, a.token);
            SELECT w.name INTO v_worker FROM worker w WHERE w.no = a.worker;
            INSERT INTO event (job_id, at, attempt, event, state, actor, detail)
            VALUES (j.id, a.finished_at, a.attempt, 'succeeded', 'succeeded', v_worker, '');
        END IF;
        IF j.start_by IS NOT NULL THEN
            -- waits for whoever is dropping what is overdue, and who finds the job ended
            DELETE FROM deadline d WHERE d.job_id = j.id;
            UPDATE job SET start_by = NULL WHERE job.id = j.id;
        END IF;
        INSERT INTO ready (lane, place, job_id, ready_at, attempt, failures, moved)
        VALUES (j.entry, nextval('place'), j.id, v_now, a.attempt, 0, true);
        INSERT INTO event (job_id, at, attempt, event, state, actor, detail)
        VALUES (j.id, v_now, a.attempt, 'reopened', 'ready', p_actor, '');
        PERFORM count_move(j.lane, a.state, 'ready');
        answer := 'done';
        RETURN NEXT;
    END LOOP;
END
$$;
