-- The newest attempts that ended badly, with what tells whose they were; p_at, p_job, p_attempt: those behind that one.
CREATE OR REPLACE FUNCTION {schema}.failures(p_since timestamptz, p_limit int, p_at timestamptz, p_job uuid, p_attempt int)
RETURNS TABLE (
    job_id uuid, task text, queue text, key text, attempt int, at timestamptz, event text, code text, message text, traceback text
)
LANGUAGE sql STABLE {hot}
AS $$
    SELECT a.job_id, j.task, j.queue, j.key, a.attempt, a.ended_at, a.event, a.code, a.message, a.traceback
    FROM (
        SELECT f.job_id, f.attempt, f.ended_at, f.event, f.code, f.message, f.traceback FROM attempt f
        WHERE f.ended_at >= p_since AND f.code IS NOT NULL
            AND (f.ended_at, f.job_id, f.attempt)
                < (coalesce(p_at, 'infinity'), coalesce(p_job, '00000000-0000-0000-0000-000000000000'), coalesce(p_attempt, 0))
        ORDER BY f.ended_at DESC, f.job_id DESC, f.attempt DESC LIMIT p_limit
    ) a
    CROSS JOIN LATERAL (SELECT job.task, job.queue, job.key FROM job WHERE job.id = a.job_id LIMIT 1) j
    ORDER BY a.ended_at DESC, a.job_id DESC, a.attempt DESC
$$;
