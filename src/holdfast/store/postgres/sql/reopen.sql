-- Brings terminal jobs back as ready, at the back of their lane, with their budget restored and no `start_by`; in the order
-- given, for keys. With the last step of a chain the chain goes on, and has its key again.
CREATE OR REPLACE FUNCTION {schema}.reopen(p_ids uuid[], p_from text[], p_actor text)
RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    v_now timestamptz;
    v_worker text;
    v_taken uuid[];
    k record;
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
        IF a.continued_by IS NOT NULL THEN
            answer := 'chained';
            RETURN NEXT;
            CONTINUE;
        END IF;
        IF j.key IS NOT NULL OR j.chain_id <> j.id THEN
            answer := 'done';
            v_taken := '{{}}';
            -- the chain's first: where a step has the same one, it is the chain's
            FOR k IN
                SELECT f.id, f.scope, f.key FROM job f
                WHERE f.id = ANY (ARRAY[j.id, j.chain_id]) AND f.key IS NOT NULL AND NOT f.windowed
                ORDER BY f.id = j.id
            LOOP
                INSERT INTO unique_key (scope, key, job_id) VALUES (k.scope, k.key, k.id)
                ON CONFLICT (scope, key) DO UPDATE SET job_id = excluded.job_id, until = NULL WHERE unique_key.until <= v_now;
                IF FOUND THEN
                    v_taken := v_taken || k.id;
                ELSIF NOT EXISTS (
                    SELECT FROM unique_key u
                    CROSS JOIN LATERAL (SELECT coalesce(h.chain_id, h.id) AS chain FROM job h WHERE h.id = u.job_id LIMIT 1) h
                    WHERE u.scope = k.scope AND u.key = k.key AND h.chain = coalesce(j.chain_id, j.id)
                ) THEN
                    answer := 'key_taken';
                    EXIT;
                END IF;
            END LOOP;
            IF answer = 'key_taken' THEN
                PERFORM free_keys(v_taken);
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
        IF j.entry <> j.lane THEN
            PERFORM rouse(ARRAY[j.entry]);
        END IF;
        INSERT INTO event (job_id, at, attempt, event, state, actor, detail)
        VALUES (j.id, v_now, a.attempt, 'reopened', 'ready', p_actor, '');
        PERFORM count_move(j.lane, a.state, 'ready');
        answer := 'done';
        RETURN NEXT;
    END LOOP;
END
$$;
