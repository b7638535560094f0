-- Removes jobs and everything about them, in whatever state.
CREATE OR REPLACE FUNCTION {schema}.delete(p_ids uuid[], p_from text[])
RETURNS TABLE (job_id uuid, answer text)
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    j job;
    t record;
BEGIN
    FOR j IN SELECT * FROM job WHERE job.id = ANY (p_ids) ORDER BY job.id LOOP
        job_id := j.id;
        IF EXISTS (SELECT FROM blocker b WHERE b.chain_id = j.id AND NOT b.ended) THEN
            answer := 'needed';
            RETURN NEXT;
            CONTINUE;
        END IF;
        SELECT * INTO t FROM take(j, p_from);
        CONTINUE WHEN t.state IS NULL;
        PERFORM count_move(j.lane, t.state, NULL);
        PERFORM forget(ARRAY[j.id]);
        answer := 'done';
        RETURN NEXT;
    END LOOP;
END
$$;
