-- Makes sure that none of these jobs can end or vanish before this transaction does: after it, each is either locked where it stands
-- or visible in the archive to the next statement. A job may move while it is looked for, so it is looked for again.
CREATE OR REPLACE FUNCTION {schema}.lock_live(p_ids uuid[])
RETURNS void
LANGUAGE plpgsql VOLATILE {hot}
AS $$
#variable_conflict use_column
DECLARE
    j job;
BEGIN
    FOR j IN SELECT * FROM job WHERE job.id = ANY (p_ids) ORDER BY job.id LOOP
        FOR pass IN 1..1000 LOOP
            PERFORM FROM blocked b WHERE b.job_id = j.id FOR KEY SHARE;
            EXIT WHEN FOUND;
            PERFORM FROM scheduled s WHERE s.job_id = j.id FOR KEY SHARE;
            EXIT WHEN FOUND;
            PERFORM FROM ready r WHERE r.lane = j.entry AND r.place = j.place AND r.job_id = j.id FOR KEY SHARE;
            EXIT WHEN FOUND;
            PERFORM FROM ready r WHERE r.moved AND r.job_id = j.id FOR KEY SHARE;
            EXIT WHEN FOUND;
            PERFORM FROM lease l WHERE l.job_id = j.id FOR KEY SHARE;
            EXIT WHEN FOUND;
            PERFORM FROM archive a WHERE a.job_id = j.id FOR KEY SHARE;  -- nor may it be deleted or pruned
            EXIT WHEN FOUND;
            EXIT WHEN NOT EXISTS (SELECT FROM job WHERE job.id = j.id);
        END LOOP;
    END LOOP;
END
$$;
