-- Has those who create jobs one call after the other, within one transaction, take turns on all their keys before the first, so that
-- two of them do not wait for each other's keys in a circle. Gives up soon, as enqueue does (HF008).
CREATE OR REPLACE FUNCTION {schema}.take_turns(p_scopes text[], p_keys text[])
RETURNS void
LANGUAGE plpgsql VOLATILE {hot} {impatient}
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(k.lock)
    FROM (SELECT DISTINCT hashtextextended(u.scope || ' ' || u.key, 0) AS lock FROM unnest(p_scopes, p_keys) AS u(scope, key) ORDER BY 1) k;
EXCEPTION WHEN lock_not_available THEN
    RAISE EXCEPTION USING ERRCODE = 'HF008';
END
$$;
