-- Takes the row lock of a waiter; true too where it waits no longer. False: somebody else has it, and has not let go of it in a moment, which
-- is waited for only if p_patient.
CREATE OR REPLACE FUNCTION {schema}.await_waiter(p_job uuid, p_patient boolean)
RETURNS boolean
LANGUAGE plpgsql VOLATILE {hot} {impatient}
AS $$
BEGIN
    PERFORM FROM blocked b WHERE b.job_id = p_job FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND OR NOT EXISTS (SELECT FROM blocked b WHERE b.job_id = p_job) THEN
        RETURN true;
    END IF;
    IF p_patient THEN
        BEGIN
            PERFORM FROM blocked b WHERE b.job_id = p_job FOR NO KEY UPDATE;
            RETURN true;
        EXCEPTION WHEN lock_not_available THEN
            RETURN false;
        END;
    END IF;
    RETURN false;
END
$$;
