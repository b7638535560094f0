-- Tells how the holder of this token has settled its attempt, if it has. Who has the lease in hand is waited for: the answer is final.
CREATE OR REPLACE FUNCTION {schema}.settled_as(p_id uuid, p_token uuid)
RETURNS text
LANGUAGE plpgsql VOLATILE {hot}
AS $$
BEGIN
    PERFORM FROM lease l WHERE l.job_id = p_id AND l.token = p_token FOR KEY SHARE;
    IF FOUND THEN
        RETURN NULL;
    END IF;
    -- a statement of its own: it sees what was committed while the lease was waited for
    RETURN coalesce(
        (SELECT 'succeeded' FROM archive a WHERE a.job_id = p_id AND a.token = p_token),
        (SELECT a.event FROM attempt a WHERE a.job_id = p_id AND a.token = p_token LIMIT 1)
    );
END
$$;
