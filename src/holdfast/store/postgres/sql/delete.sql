-- Removes jobs and everything about them, in whatever state, in the order given: a waiter before the job it needs.
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
            -- asked only now: whoever was about to wait for this job held its row, and has committed or given up
            IF EXISTS (
                SELECT FROM blocker b WHERE b.chain_id = j.id AND NOT b.ended AND EXISTS (SELECT FROM blocked w WHERE w.job_id = b.job_id)
            ) THEN
                RAISE EXCEPTION USING ERRCODE = 'HF002';
            END IF;
            CONTINUE WHEN t.state IS NULL;
            PERFORM count_move(j.lane, t.state, NULL);
            IF j.start_by IS NOT NULL THEN
                PERFORM clear_deadlines(ARRAY[j.id]);
            END IF;
            PERFORM forget(ARRAY[j.id]);
            answer := 'done';
        EXCEPTION WHEN SQLSTATE 'HF002' THEN
            answer := 'needed';  -- and the job is back where it was
        END;
        RETURN NEXT;
    END LOOP;
END
$$;
