-- Takes unique keys for jobs about to be created, in key order. Answers for each job that may not be created (who holds its
-- key) and for each that replaced a waiting job (when it is due now).
--
-- A job that may replace another comes alone in its call (see `calls` in producing.py).
CREATE OR REPLACE FUNCTION {schema}.take_keys(
    p_ids uuid[], p_scopes text[], p_keys text[], p_windows float8[], p_conflicts text[], p_delays float8[], p_run_ats timestamptz[],
    p_now timestamptz
)
RETURNS TABLE (job_id uuid, holder uuid, due timestamptz)
LANGUAGE plpgsql VOLATILE {hot}
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
        FROM unnest(p_ids, p_scopes, p_keys, p_windows, p_conflicts, p_delays, p_run_ats) WITH ORDINALITY
            AS u(id, scope, key, win, conflict, delay, run_at, n)
        WHERE u.key IS NOT NULL AND u.id <> ALL (v_won) AND NOT EXISTS (SELECT FROM job j WHERE j.id = u.id)
        ORDER BY u.scope, u.key, u.n
    LOOP
        job_id := k.id;
        LOOP
            holder := NULL;
            due := NULL;
            SELECT * INTO h FROM unique_key u WHERE u.scope = k.scope AND u.key = k.key FOR UPDATE;
            IF NOT FOUND THEN
                INSERT INTO unique_key (scope, key, job_id, until) VALUES (k.scope, k.key, k.id, k.until) ON CONFLICT DO NOTHING;
                EXIT WHEN FOUND;
                CONTINUE;
            END IF;
            EXIT WHEN h.job_id = k.id;
            IF h.until <= p_now THEN
                UPDATE unique_key u SET job_id = k.id, until = k.until WHERE u.scope = k.scope AND u.key = k.key;
                EXIT;
            END IF;
            holder := h.job_id;
            EXIT WHEN k.conflict = 'skip';

            SELECT * INTO old FROM job j WHERE j.id = h.job_id;
            EXIT WHEN NOT FOUND;
            SELECT * INTO t FROM take(old, ARRAY[{waiting}]);
            EXIT WHEN NOT t.taken;
            PERFORM finish(
                old, t.state, t.attempt, t.failures, NULL, NULL, 'cancel', 'canceled', 'REPLACED', format('replaced by %s', k.id), NULL, NULL,
                'store', p_now
            );
            DELETE FROM unique_key u WHERE u.scope = k.scope AND u.key = k.key;
            INSERT INTO unique_key (scope, key, job_id, until) VALUES (k.scope, k.key, k.id, k.until);
            PERFORM resolve(ARRAY[old.id]);
            holder := NULL;
            due := coalesce(k.run_at, p_now + k.delay * interval '1 s', p_now);
            IF k.conflict = 'replace' THEN
                due := least(due, coalesce(t.run_at, p_now));
            END IF;
            EXIT;
        END LOOP;
        IF holder IS NOT NULL OR due IS NOT NULL THEN
            RETURN NEXT;
        END IF;
    END LOOP;
END
$$;
