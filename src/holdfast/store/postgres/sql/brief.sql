-- Cuts a text to what the event log keeps, saying so; the same words as `core.text.clean`.
CREATE OR REPLACE FUNCTION {schema}.brief(p_text text)
RETURNS text
LANGUAGE sql IMMUTABLE
AS $$
    SELECT CASE WHEN length(p_text) <= {text_limit} THEN p_text
        ELSE left(p_text, greatest(0, {text_limit} - length(n.note))) || n.note END
    FROM (SELECT format(E'\n\u2026 cut: %s characters, {text_limit} kept', length(p_text)) AS note) n
$$;
