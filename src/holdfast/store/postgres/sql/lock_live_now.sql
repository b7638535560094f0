-- Locks a chain where it stands (lock_live.sql) if that can be had in an instant, which is mostly enough for a settle that is under way.
-- False: somebody else has it, and may keep it for as long as they like.
CREATE OR REPLACE FUNCTION {schema}.lock_live_now(p_chain uuid)
RETURNS boolean
LANGUAGE plpgsql VOLATILE {hot} SET lock_timeout TO '10ms'
AS $$
BEGIN
    PERFORM lock_live(ARRAY[p_chain]);
    RETURN true;
EXCEPTION WHEN lock_not_available THEN
    RETURN false;
END
$$;
