-- The narrow tables of the reference: what a queue on PostgreSQL needs at least. FROZEN: see README.md.
CREATE TABLE job (
    id uuid PRIMARY KEY,
    task text NOT NULL,
    args text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE TABLE ready (
    lane int NOT NULL,
    seq bigint NOT NULL,
    job_id uuid NOT NULL,
    PRIMARY KEY (lane, seq)
);
CREATE TABLE lease (
    job_id uuid PRIMARY KEY,
    worker int NOT NULL,
    token uuid NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE done (
    job_id uuid PRIMARY KEY,
    finished_at timestamptz NOT NULL,
    result text
);
