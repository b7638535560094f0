-- Counts one job from one state to another; NULL is a job that is not there.
CREATE OR REPLACE FUNCTION {schema}.count_move(p_lane bigint, p_from text, p_to text)
RETURNS void
LANGUAGE sql VOLATILE {hot}
AS $$
    INSERT INTO tally (lane, blocked, scheduled, ready, running, succeeded, failed, canceled)
    SELECT p_lane,
        (coalesce(p_to, '') = 'blocked')::int - (coalesce(p_from, '') = 'blocked')::int,
        (coalesce(p_to, '') = 'scheduled')::int - (coalesce(p_from, '') = 'scheduled')::int,
        (coalesce(p_to, '') = 'ready')::int - (coalesce(p_from, '') = 'ready')::int,
        (coalesce(p_to, '') = 'running')::int - (coalesce(p_from, '') = 'running')::int,
        (coalesce(p_to, '') = 'succeeded')::int - (coalesce(p_from, '') = 'succeeded')::int,
        (coalesce(p_to, '') = 'failed')::int - (coalesce(p_from, '') = 'failed')::int,
        (coalesce(p_to, '') = 'canceled')::int - (coalesce(p_from, '') = 'canceled')::int
$$;
