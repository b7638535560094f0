-- The entries of lanes without a key that a limit of their queue or task holds for: they are claimed from by claim_limited.sql alone. NULL where
-- nobody has set such a limit, which two pages tell.
CREATE OR REPLACE FUNCTION {schema}.limited_entries()
RETURNS bigint[]
LANGUAGE plpgsql STABLE {hot}
AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT FROM limits WHERE kind <> 'key') THEN
        RETURN NULL;
    END IF;
    RETURN ARRAY(
        SELECT l.entry FROM limits t JOIN lane l ON l.queue = t.name AND NOT l.keyed WHERE t.kind = 'queue'
        UNION
        SELECT l.entry FROM limits t JOIN lane l ON l.task = t.name AND NOT l.keyed WHERE t.kind = 'task'
    );
END
$$;
