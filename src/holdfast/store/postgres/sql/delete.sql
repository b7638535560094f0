-- Removes jobs and everything about them, in whatever state, in the order given: a waiter before the job it needs. A chain of
-- several steps is removed as a whole or not at all (delete_chains.sql).
CREATE OR REPLACE FUNCTION {schema}.delete(p_ids uuid[], p_from text[])
RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    j job;
    t record;
BEGIN
    FOR j IN SELECT * FROM job WHERE job.id = ANY (p_ids) ORDER BY array_position(p_ids, job.id) LOOP
        job_id := j.id;
        BEGIN
            SELECT * INTO t FROM take(j, p_from);
            -- Both are asked only now. It may have continued while its lease was waited for; and whoever was about to wait for
            -- this job held its row, and has committed or given up.
            IF EXISTS (SELECT FROM chain c WHERE c.id = coalesce(j.chain_id, j.id) AND c.steps > 1) THEN
                RAISE EXCEPTION USING ERRCODE = 'HF005';
            END IF;
            IF EXISTS (SELECT FROM needed_by(ARRAY[j.id], ARRAY[j.id])) THEN
                RAISE EXCEPTION USING ERRCODE = 'HF002';
            END IF;
            CONTINUE WHEN t.state IS NULL;
            PERFORM count_move(j.lane, t.state, NULL);
            IF j.start_by IS NOT NULL THEN
                PERFORM clear_deadlines(ARRAY[j.id]);
            END IF;
            PERFORM forget(ARRAY[j.id]);
            DELETE FROM chain WHERE chain.id = j.chain_id;
            answer := 'done';
        EXCEPTION  -- and the job is back where it was
            WHEN SQLSTATE 'HF002' THEN answer := 'needed';
            WHEN SQLSTATE 'HF005' THEN answer := 'chained';
        END;
        RETURN NEXT;
    END LOOP;
END
$$;
