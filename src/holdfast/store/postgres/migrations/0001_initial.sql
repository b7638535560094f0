-- The state of a job is the table that holds its row:
--   blocked, scheduled, ready, lease (= running), archive (= succeeded, failed, canceled).
-- `job` is what was asked for and never changes (but for `start_by`, which a reopened or suspended job loses, and `chain_id`, which a job gets
-- when it continues). No foreign keys: they would lock and look up on the hot path. No checks on job, lease and archive: their texts are
-- parsed anew by every statement that inserts there, and only the functions here do that.
-- What only chains and waiters have is a nullable column at the end: it takes no room where it is NULL.

CREATE TABLE meta (
    version int NOT NULL,
    identity uuid NOT NULL DEFAULT gen_random_uuid(),  -- of this very schema: one made anew under the same name is another
    rewound interval NOT NULL DEFAULT '0'              -- how far tests have rewound the store
);
INSERT INTO meta (version) VALUES (0);

-- One number for every entry into `ready`. CACHE 1: the marks rely on numbers being drawn in order (decision 0002).
CREATE SEQUENCE place AS bigint CACHE 1;
-- One number for every claim, however many jobs it takes, so that the reaper can ask for the leases it has not seen yet.
CREATE SEQUENCE claim_no AS bigint CACHE 1;

-- No index on anything a sign of life changes: with room on the page it stays HOT. It leaves `offline_at` as it is, but for a
-- worker that comes back.
CREATE TABLE worker (
    no int GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id uuid NOT NULL UNIQUE,
    name text NOT NULL,
    info text NOT NULL,
    kind text NOT NULL CHECK (kind IN ('local', 'remote')),
    version text NOT NULL,
    slots int NOT NULL,
    capabilities text NOT NULL,
    registered_at timestamptz NOT NULL,
    heartbeat_at timestamptz,
    offline_at timestamptz,
    disabled_at timestamptz,
    disabled_by text NOT NULL DEFAULT '',
    draining_at timestamptz,
    counters text NOT NULL DEFAULT '{}',
    owner text NOT NULL DEFAULT '',
    past boolean NOT NULL DEFAULT false -- offline for so long that it is listed no more
) WITH (fillfactor = 50);
-- Workers are kept for ever, for jobs name who processed them: who lists the living or looks for silent ones must not read those that
-- are long gone.
CREATE INDEX worker_listed ON worker (offline_at, registered_at, id) WHERE NOT past;
-- Every claim asks whether its worker may: mostly of an empty index.
CREATE INDEX worker_disabled ON worker (no) WHERE disabled_at IS NOT NULL;

CREATE TABLE queue (
    name text PRIMARY KEY,
    paused_at timestamptz,
    paused_by text NOT NULL DEFAULT '',
    reason text NOT NULL DEFAULT ''
);

-- What is said about limits (JSON of core/limits.py, `LimitRule`), and what is left in their buckets. Its row's lock is the turn of those who claim under it.
CREATE TABLE limits (
    id bigint PRIMARY KEY,     -- from its name: core/limits.py, `limit_id`
    kind text NOT NULL CHECK (kind IN ('queue', 'task', 'key')),
    name text NOT NULL,
    key text CHECK (key IS NULL OR kind = 'key'),
    declared text,
    override text,
    override_by text NOT NULL DEFAULT '',
    override_at timestamptz,
    tokens float8,
    filled_at timestamptz,
    base bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX limits_wide ON limits (kind, name) WHERE kind <> 'key';
CREATE INDEX limits_key ON limits (name, key) WHERE kind = 'key';
CREATE INDEX limits_chosen ON limits (id) WHERE override IS NOT NULL;

-- Who runs under a limit. A row counts while the lease of that attempt exists, and is forgotten by who claims next.
CREATE TABLE permit (
    limit_id bigint NOT NULL,
    no bigint NOT NULL,        -- the lease's
    job_id uuid NOT NULL,
    attempt int NOT NULL,
    PRIMARY KEY (limit_id, no, job_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- The known lanes. Not unique on purpose: two transactions may add the same lane without waiting for one another.
-- A lane's retries (entry = id | 1) have a row of their own from the first retry on, so that a look reads no lane in vain.
CREATE TABLE lane (
    id bigint NOT NULL,
    entry bigint NOT NULL,
    queue text NOT NULL,
    task text NOT NULL,
    priority smallint NOT NULL,
    requires text NOT NULL,
    -- it belongs to the key of a limit (core/needs.py, `limit_text`): there may be a great many such lanes, and most rest
    keyed boolean NOT NULL GENERATED ALWAYS AS (position('"\u001e' IN requires) > 0) STORED,
    resting boolean NOT NULL DEFAULT false
);
CREATE INDEX lane_id ON lane (id, entry);
CREATE INDEX lane_awake ON lane (entry) WHERE NOT resting;
CREATE INDEX lane_keyed ON lane (entry) WHERE keyed;
CREATE INDEX lane_turns ON lane (id, entry) WHERE keyed AND NOT resting;
CREATE INDEX lane_queue ON lane (queue) WHERE NOT keyed;
CREATE INDEX lane_task ON lane (task) WHERE NOT keyed;

CREATE TABLE job (
    id uuid PRIMARY KEY,
    place bigint NOT NULL,
    lane bigint NOT NULL,
    entry bigint NOT NULL,
    created_at timestamptz NOT NULL,
    run_at timestamptz,
    start_by timestamptz,      -- past this it is not to be started any more
    lease_ms bigint NOT NULL,
    priority smallint NOT NULL,
    born text NOT NULL,        -- blocked, scheduled or ready
    task text NOT NULL,
    queue text NOT NULL,
    args text NOT NULL,
    policy text,
    scope text,
    key text,
    windowed boolean,          -- its key is held for a window, not while it is live
    chain_id uuid,             -- the first step's id, in every step of a chain; NULL: it never was one
    tags text,
    trace text,
    blockers int               -- how many chains it was to wait for; NULL: none
) WITH (autovacuum_vacuum_insert_scale_factor = 0.2);
CREATE INDEX job_chain ON job (chain_id, id) WHERE chain_id IS NOT NULL;

-- Where a chain stands: with its last step. For jobs that were started as a chain and those that have continued.
-- No index on what a continuation changes: with room on the page it stays HOT.
CREATE TABLE chain (
    id uuid PRIMARY KEY,       -- of its first step
    step uuid NOT NULL,        -- its last one
    steps int NOT NULL CHECK (steps > 0)
) WITH (fillfactor = 50);

CREATE TABLE ready (
    lane bigint NOT NULL,      -- the negative of a lane is its front, for released jobs
    place bigint NOT NULL,
    job_id uuid NOT NULL,
    ready_at timestamptz NOT NULL,
    attempt int NOT NULL,
    failures int NOT NULL,
    -- not at (job.entry, job.place), as it was enqueued: found by job_id through the index below. What has not moved is in its first
    -- attempt and has waited since job.created_at: a claim takes all of it from `job`
    moved boolean NOT NULL,
    entered bigint,            -- in a front only: a number drawn on entry, so that looks can have a mark there too
    PRIMARY KEY (lane, place)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX ready_moved ON ready (job_id) WHERE moved;
CREATE INDEX ready_front ON ready (entered) WHERE lane < 0;

CREATE TABLE scheduled (
    job_id uuid PRIMARY KEY,
    run_at timestamptz NOT NULL,
    attempt int NOT NULL,
    failures int NOT NULL,
    signal text                -- what a suspended job waits for. Here, and not in a table of its own, it cannot outlive the waiting
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX scheduled_run_at ON scheduled (run_at, job_id);
CREATE INDEX scheduled_signal ON scheduled (signal) WHERE signal IS NOT NULL;

-- Emitted once, and kept for a while: who comes to wait later does not have to.
CREATE TABLE signal (
    name text PRIMARY KEY,
    data text NOT NULL,
    emitted_at timestamptz NOT NULL,
    emitted_by text NOT NULL
);
CREATE INDEX signal_emitted_at ON signal (emitted_at);

-- The waiting jobs that have a `start_by`; most have none.
CREATE TABLE deadline (
    job_id uuid PRIMARY KEY,
    at timestamptz NOT NULL    -- its `start_by`, but never in the past when the row is entered: it would lie below the marks
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX deadline_at ON deadline (at);

CREATE TABLE blocked (
    job_id uuid PRIMARY KEY,
    remaining int NOT NULL CHECK (remaining >= 0),
    on_failure text NOT NULL CHECK (on_failure IN ('fail', 'cancel', 'run')),
    run_at timestamptz
) WITH (fillfactor = 80);

-- Edges stay when the blocker has ended, for results are read in their order. Every settle asks for open ones: of those alone
-- there is a small index. The other one answers who depends on a chain.
CREATE TABLE blocker (
    job_id uuid NOT NULL,
    position int NOT NULL,
    chain_id uuid NOT NULL,
    ended boolean NOT NULL DEFAULT false,
    PRIMARY KEY (job_id, position)
) WITH (fillfactor = 80);
CREATE INDEX blocker_open ON blocker (chain_id) WHERE NOT ended;
CREATE INDEX blocker_chain ON blocker (chain_id);

-- Waiters made in a caller's transaction, which locked no blocker: that it ended before the edge was seen is not ruled out. Waiters
-- that could not be had when their blocker ended. And chains that ended in a caller's transaction (job_id = chain_id).
CREATE TABLE doubt (
    job_id uuid NOT NULL,
    chain_id uuid NOT NULL,
    turn bigint GENERATED ALWAYS AS IDENTITY,
    PRIMARY KEY (job_id, chain_id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX doubt_turn ON doubt (turn);

-- No index on anything a heartbeat changes: with room on the page an extension stays HOT.
CREATE TABLE lease (
    job_id uuid PRIMARY KEY,
    token uuid NOT NULL,
    no bigint NOT NULL,
    lane bigint NOT NULL,
    place bigint NOT NULL,
    claimed_at timestamptz NOT NULL,
    expires_at timestamptz NOT NULL,
    lease_ms bigint NOT NULL,
    worker int NOT NULL,
    attempt int NOT NULL,
    failures int NOT NULL,
    keyed boolean NOT NULL,
    cancel text,               -- why it was asked to stop; NULL: it was not
    free boolean NOT NULL DEFAULT false,
    dated boolean NOT NULL DEFAULT false,  -- it has a `start_by`
    chain uuid                 -- the job's `chain_id`
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lease_no ON lease (no);

CREATE TABLE archive (
    job_id uuid PRIMARY KEY,
    lane bigint NOT NULL,
    finished_at timestamptz NOT NULL,
    claimed_at timestamptz,
    token uuid,
    worker int,
    attempt int NOT NULL,
    failures int NOT NULL,
    late boolean NOT NULL,
    state text NOT NULL,       -- succeeded, failed or canceled
    code text,
    message text,
    traceback text,            -- only where no attempt record has it
    result text,
    chain uuid,                -- the job's `chain_id`
    continued_by uuid          -- the next step: then the chain has not ended with this one
) WITH (autovacuum_vacuum_insert_scale_factor = 0.2);
CREATE INDEX archive_lane ON archive (lane, job_id);

CREATE TABLE attempt (
    job_id uuid NOT NULL,
    attempt int NOT NULL,
    event text NOT NULL,
    claimed_at timestamptz NOT NULL,
    ended_at timestamptz NOT NULL,
    worker int NOT NULL,
    late boolean NOT NULL,
    token uuid,                -- only when the holder itself settled
    code text,
    message text,
    traceback text,
    PRIMARY KEY (job_id, attempt)
);
-- For the newest failures; attempts that simply succeeded are not here.
CREATE INDEX attempt_failed ON attempt (ended_at, job_id, attempt) WHERE code IS NOT NULL;

CREATE TABLE event (
    no bigint GENERATED ALWAYS AS IDENTITY,
    job_id uuid NOT NULL,
    at timestamptz NOT NULL,
    attempt int NOT NULL,
    event text NOT NULL,
    state text NOT NULL,
    actor text NOT NULL,
    detail text NOT NULL,
    PRIMARY KEY (job_id, no)
);

CREATE TABLE log (
    no bigint GENERATED ALWAYS AS IDENTITY,
    job_id uuid NOT NULL,
    at timestamptz NOT NULL,
    attempt int NOT NULL,
    level text NOT NULL,
    logger text NOT NULL,
    message text NOT NULL,
    fields text NOT NULL,
    line uuid, -- what its writer calls it: one that is sent again is there once
    PRIMARY KEY (job_id, no)
);
CREATE UNIQUE INDEX log_line ON log (job_id, line) WHERE line IS NOT NULL;

CREATE TABLE progress (
    job_id uuid PRIMARY KEY,
    percent float8 NOT NULL,
    step text NOT NULL,
    message text NOT NULL,
    at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE part (
    job_id uuid NOT NULL,
    name text NOT NULL,
    no bigint GENERATED ALWAYS AS IDENTITY,
    state text NOT NULL CHECK (state IN ('pending', 'in_progress', 'completed', 'failed', 'skipped')),
    done float8 NOT NULL,
    total float8,
    data text,
    error text,
    started_at timestamptz,
    completed_at timestamptz,
    PRIMARY KEY (job_id, name)
) WITH (fillfactor = 70);

CREATE TABLE unique_key (
    scope text NOT NULL,
    key text NOT NULL,
    job_id uuid NOT NULL,
    until timestamptz,         -- NULL: held while the job is live
    PRIMARY KEY (scope, key)
);

CREATE TABLE schedule (
    name text PRIMARY KEY,
    task text NOT NULL,
    cron text NOT NULL,
    timezone text NOT NULL,
    spec text NOT NULL,
    next_at timestamptz NOT NULL,
    last_at timestamptz,
    last_job uuid
) WITH (fillfactor = 50);

-- Counts: every transition appends its differences; folding sums them up (decision 0005).
CREATE TABLE tally (
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    lane bigint NOT NULL,
    blocked int NOT NULL DEFAULT 0,
    scheduled int NOT NULL DEFAULT 0,
    ready int NOT NULL DEFAULT 0,
    running int NOT NULL DEFAULT 0,
    succeeded int NOT NULL DEFAULT 0,
    failed int NOT NULL DEFAULT 0,
    canceled int NOT NULL DEFAULT 0
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX tally_xid ON tally (xid);

CREATE TABLE total (
    generation bigint NOT NULL,
    upto xid8 NOT NULL,
    lane bigint NOT NULL,
    blocked bigint NOT NULL,
    scheduled bigint NOT NULL,
    ready bigint NOT NULL,
    running bigint NOT NULL,
    succeeded bigint NOT NULL,
    failed bigint NOT NULL,
    canceled bigint NOT NULL,
    PRIMARY KEY (generation, lane)
);

-- Of a key's secret only its SHA-256. `queues` and `actions` are JSON lists; NULL: all.
CREATE TABLE key (
    id text PRIMARY KEY,
    name text NOT NULL,
    role text NOT NULL CHECK (role IN ('viewer', 'operator', 'admin', 'worker', 'client')),
    digest text NOT NULL,
    queues text,
    actions text,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    revoked_by text NOT NULL DEFAULT '',
    used_at timestamptz
);

-- Who did what to what. Lines are added, never changed; those about enqueues, of which machines make many, go when they are old.
CREATE TABLE audit (
    no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    actor text NOT NULL,
    action text NOT NULL,
    targets text NOT NULL,     -- a JSON list
    count bigint NOT NULL,
    detail text NOT NULL
);
CREATE FUNCTION keep_audit() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN -- by itself: a truncation has no OLD
        IF OLD.action = 'enqueue' THEN
            RETURN OLD;
        END IF;
    END IF;
    RAISE EXCEPTION 'lines of the audit log are never changed or deleted';
END
$$;
CREATE INDEX audit_action ON audit (action, no);
CREATE INDEX audit_actor ON audit (left(actor, 100), no); -- a whole one may be longer than an index takes
CREATE TRIGGER audit_stands BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION keep_audit();
CREATE TRIGGER audit_stays BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION keep_audit();

-- Attempts added up by how they ended, over minutes, hours and all time (`at` is NULL).
CREATE TABLE figure (
    grain text NOT NULL,
    at timestamptz,
    queue text NOT NULL,
    task text NOT NULL,
    event text NOT NULL,
    code text NOT NULL,
    count bigint NOT NULL,
    waited float8 NOT NULL,
    ran float8 NOT NULL,
    waits bigint[] NOT NULL,
    runs bigint[] NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX figure_key ON figure (grain, coalesce(at, '-infinity'::timestamptz), queue, task, event, code);
