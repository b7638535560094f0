-- Takes unique keys for jobs about to be created, in key order. Answers for each job that may not be created (who holds its
-- key) and for each that replaced a waiting job (when it is due now).
--
-- A job that may replace another comes alone in its call (see `calls` in rendering.py). A key that the job's own chain holds
-- stays with who has it, and is no obstacle. Only what has not begun gives way: neither a later step nor a chain that has one.
--
-- With p_doubt the transaction is a caller's, and may stay open for long: who waits for a replaced job is not settled here, for that would
-- lock them. Nor is it read who they are: a transaction with a view of its own may not see them all. A doubt about the whole chain is
-- entered, and who sweeps it after the commit decides (unblock.sql).
--
-- An open transaction may have taken a key for as long as it likes: who waits for it here gives up soon (55P03).
CREATE OR REPLACE FUNCTION {schema}.take_keys(
    p_ids uuid[], p_scopes text[], p_keys text[], p_windows float8[], p_conflicts text[], p_delays float8[], p_run_ats timestamptz[],
    p_chains uuid[], p_doubt boolean, p_now timestamptz
)
RETURNS TABLE (job_id uuid, holder uuid, chain uuid, due timestamptz)
LANGUAGE plpgsql VOLATILE {hot} {impatient}
AS $$
#variable_conflict use_column
DECLARE
    v_won uuid[];
    k record;
    h unique_key;
    old job;
    t record;
BEGIN
    WITH won AS (
        INSERT INTO unique_key (scope, key, job_id, until)
        SELECT u.scope, u.key, u.id, p_now + u.win * interval '1 s'
        FROM unnest(p_ids, p_scopes, p_keys, p_windows) WITH ORDINALITY AS u(id, scope, key, win, n)
        WHERE u.key IS NOT NULL AND NOT EXISTS (SELECT FROM job j WHERE j.id = u.id)
        ORDER BY u.scope, u.key, u.n
        ON CONFLICT DO NOTHING
        RETURNING job_id
    )
    SELECT coalesce(array_agg(w.job_id), '{{}}') INTO v_won FROM won w;

    FOR k IN
        SELECT u.*, p_now + u.win * interval '1 s' AS until
        FROM unnest(p_ids, p_scopes, p_keys, p_windows, p_conflicts, p_delays, p_run_ats, p_chains) WITH ORDINALITY
            AS u(id, scope, key, win, conflict, delay, run_at, chain, n)
        WHERE u.key IS NOT NULL AND u.id <> ALL (v_won) AND NOT EXISTS (SELECT FROM job j WHERE j.id = u.id)
        ORDER BY u.scope, u.key, u.n
    LOOP
        job_id := k.id;
        LOOP
            holder := NULL;
            chain := NULL;
            due := NULL;
            -- Without a lock: held until a caller commits, it would keep the holder from being settled.
            SELECT * INTO h FROM unique_key u WHERE u.scope = k.scope AND u.key = k.key;
            IF NOT FOUND THEN
                INSERT INTO unique_key (scope, key, job_id, until) VALUES (k.scope, k.key, k.id, k.until) ON CONFLICT DO NOTHING;
                EXIT WHEN FOUND;
                CONTINUE;
            END IF;
            EXIT WHEN h.job_id = k.id;
            IF h.until <= p_now THEN
                UPDATE unique_key u SET job_id = k.id, until = k.until
                WHERE u.scope = k.scope AND u.key = k.key AND u.job_id = h.job_id AND u.until <= p_now;
                EXIT WHEN FOUND;
                CONTINUE;
            END IF;
            SELECT * INTO old FROM job j WHERE j.id = h.job_id;
            EXIT WHEN coalesce(old.chain_id, h.job_id) = k.chain;
            holder := h.job_id;
            chain := coalesce(old.chain_id, h.job_id);
            EXIT WHEN k.conflict = 'skip' OR old.id IS NULL OR old.chain_id <> old.id;

            BEGIN
                PERFORM FROM unique_key u WHERE u.scope = k.scope AND u.key = k.key AND u.job_id = h.job_id FOR UPDATE;
                IF NOT FOUND THEN
                    RAISE EXCEPTION USING ERRCODE = 'HF006';
                END IF;
                SELECT * INTO t FROM take(old, ARRAY[{waiting}]);
                IF NOT t.taken THEN
                    RAISE EXCEPTION USING ERRCODE = 'HF005';
                END IF;
                PERFORM finish(
                    old, t.state, t.attempt, t.failures, NULL, NULL, 'cancel', 'canceled', 'REPLACED', format('replaced by %s', k.id), NULL,
                    NULL, 'store', p_now
                );
                DELETE FROM unique_key u WHERE u.scope = k.scope AND u.key = k.key;
                INSERT INTO unique_key (scope, key, job_id, until) VALUES (k.scope, k.key, k.id, k.until);
                IF p_doubt THEN
                    INSERT INTO doubt (job_id, chain_id) VALUES (old.id, old.id) ON CONFLICT DO NOTHING;
                ELSE
                    PERFORM resolve(ARRAY[old.id]);
                END IF;
                holder := NULL;
                due := coalesce(k.run_at, p_now + k.delay * interval '1 s', p_now);
                IF k.conflict = 'replace' THEN
                    due := least(due, coalesce(t.run_at, p_now));
                END IF;
                EXIT;
            EXCEPTION
                WHEN SQLSTATE 'HF005' THEN EXIT;  -- it has begun, and stays: the lock on its key is let go of again
                WHEN SQLSTATE 'HF006' THEN NULL;  -- the key is somebody else's by now
            END;
        END LOOP;
        IF holder IS NOT NULL OR due IS NOT NULL THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
