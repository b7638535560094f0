-- One turn of the reference: claim up to 200 jobs, then settle them, each in a transaction of its own. FROZEN: see README.md.
-- `mark` begins as 0 and remembers where this connection's last claim began: what lies before it is gone, but not yet vacuumed.
WITH picked AS MATERIALIZED (
    SELECT seq FROM ready WHERE lane = 1 AND seq >= :mark::bigint ORDER BY seq LIMIT 200 FOR UPDATE SKIP LOCKED
), taken AS (
    DELETE FROM ready WHERE lane = 1 AND seq = ANY (ARRAY(SELECT seq FROM picked)) RETURNING job_id
), leased AS (
    INSERT INTO lease (job_id, worker, token, expires_at)
    SELECT job_id, :client_id, (SELECT gen_random_uuid()), now() + interval '1 minute' FROM taken
    RETURNING job_id, token
)
SELECT count(*) AS found, array_agg(leased.job_id) AS ids, min(leased.token::text) AS token, string_agg(job.args, ',') AS args,
    coalesce((SELECT min(seq) FROM picked), :mark::bigint) AS mark
FROM leased CROSS JOIN LATERAL (SELECT args FROM job WHERE job.id = leased.job_id LIMIT 1) AS job
\gset
\if :found = 0
\sleep 1 s
\else
WITH ended AS (
    DELETE FROM lease WHERE job_id = ANY (:ids::uuid[]) AND token = :token::uuid RETURNING job_id
)
INSERT INTO done (job_id, finished_at, result) SELECT job_id, clock_timestamp(), 'null' FROM ended;
\endif
