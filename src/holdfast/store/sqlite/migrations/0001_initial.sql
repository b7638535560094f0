-- The state of a job is the table that holds its row: blocked, scheduled, ready, lease, or archive. Words in braces come from
-- core.states. Times are microseconds since the epoch, UTC; ids and tokens the 16 bytes of a UUID.

CREATE TABLE holdfast_meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    -- the last number drawn; numbers order what has no better order: places in lanes, lines of a log
    number INTEGER NOT NULL
);

-- Everything about a job that never changes, but for the chain it belongs to: that is written when the first step continues. With
-- a rowid, because args may be wide: in a table without one they would also fill the inner pages of the tree. `blockers` counts
-- the chains it was to wait for, and is NULL where there are none.
CREATE TABLE holdfast_job (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    born TEXT NOT NULL CHECK (born IN ({born})),
    created_at INTEGER NOT NULL,
    lane INTEGER NOT NULL CHECK (lane > 0),
    entry INTEGER NOT NULL CHECK (entry > 0),
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
    lease REAL NOT NULL CHECK (lease > 0),
    policy TEXT,
    scope TEXT,
    key TEXT,
    held_for REAL,
    requires TEXT,
    tags TEXT,
    chain_id BLOB CHECK (length(chain_id) = 16),
    blockers INTEGER CHECK (blockers > 0),
    trace TEXT,
    args TEXT NOT NULL,
    CHECK ((scope IS NULL) = (key IS NULL))
);
CREATE INDEX holdfast_job_chain ON holdfast_job (chain_id, id) WHERE chain_id IS NOT NULL;

-- One for each job that began as a chain, and for each that has continued: `step` is the last one, where the chain stands.
CREATE TABLE holdfast_chain (
    id BLOB NOT NULL PRIMARY KEY,
    step BLOB NOT NULL CHECK (length(step) = 16),
    steps INTEGER NOT NULL CHECK (steps > 0)
) WITHOUT ROWID;

CREATE TABLE holdfast_blocked (
    job_id BLOB NOT NULL PRIMARY KEY,
    run_at INTEGER
) WITHOUT ROWID;

-- The chains a job was to wait for, kept for as long as the job is: their results are read in this order. `blocker_id` may name a
-- chain that is gone. The index leads a waiter to what it still waits for without a look at what has ended.
CREATE TABLE holdfast_blocker (
    blocker_id BLOB NOT NULL,
    waiter_id BLOB NOT NULL,
    position INTEGER NOT NULL,
    ended INTEGER NOT NULL CHECK (ended IN (0, 1)),
    PRIMARY KEY (blocker_id, waiter_id)
) WITHOUT ROWID;
CREATE INDEX holdfast_blocker_of ON holdfast_blocker (waiter_id, ended, position);

-- `signal` is what a suspended job waits for: whatever makes it leave ends that too.
CREATE TABLE holdfast_scheduled (
    run_at INTEGER NOT NULL,
    job_id BLOB NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    failures INTEGER NOT NULL CHECK (failures >= 0),
    signal TEXT,
    PRIMARY KEY (run_at, job_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX holdfast_scheduled_job ON holdfast_scheduled (job_id);
CREATE INDEX holdfast_scheduled_signal ON holdfast_scheduled (signal, job_id) WHERE signal IS NOT NULL;

-- Emitted once; what came first stands.
CREATE TABLE holdfast_signal (
    name TEXT NOT NULL PRIMARY KEY,
    data TEXT NOT NULL,
    emitted_at INTEGER NOT NULL,
    emitted_by TEXT NOT NULL
);
CREATE INDEX holdfast_signal_age ON holdfast_signal (emitted_at);

-- When live jobs that wait are to be ended. Stays while the job runs, for it may wait again; goes with its end.
CREATE TABLE holdfast_deadline (
    start_by INTEGER NOT NULL,
    job_id BLOB NOT NULL,
    PRIMARY KEY (start_by, job_id)
) WITHOUT ROWID;
CREATE UNIQUE INDEX holdfast_deadline_job ON holdfast_deadline (job_id);

-- The front of a lane, where released jobs go, is its negative; retries wait in the odd lane above.
CREATE TABLE holdfast_ready (
    lane INTEGER NOT NULL CHECK (lane <> 0),
    seq INTEGER NOT NULL,
    job_id BLOB NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    failures INTEGER NOT NULL CHECK (failures >= 0),
    ready_at INTEGER NOT NULL,
    PRIMARY KEY (lane, seq)
) WITHOUT ROWID;
CREATE UNIQUE INDEX holdfast_ready_job ON holdfast_ready (job_id);

-- Carries what a settlement needs to know about the job, so that it need not look there. No further indexes: there is one row for
-- each running job, so the reaper's scan is short, and two more trees made claiming and settling 5 % slower.
CREATE TABLE holdfast_lease (
    job_id BLOB NOT NULL PRIMARY KEY,
    token BLOB NOT NULL CHECK (length(token) = 16),
    worker_id BLOB NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt > 0),
    failures INTEGER NOT NULL CHECK (failures >= 0),
    lane INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    length INTEGER NOT NULL,
    claimed_at INTEGER NOT NULL,
    heartbeat_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    keyed INTEGER NOT NULL,
    expires INTEGER NOT NULL,
    chain_id BLOB,
    cancel_requested INTEGER NOT NULL DEFAULT 0,
    cancel_reason TEXT NOT NULL DEFAULT '',
    free INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- `token` is there when the job simply succeeded: then there is no record of the attempt, and none of the event. `continued_by` is
-- the step that follows it in its chain.
CREATE TABLE holdfast_archive (
    job_id BLOB NOT NULL PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ({terminal})),
    attempt INTEGER NOT NULL CHECK (attempt >= 0),
    failures INTEGER NOT NULL CHECK (failures >= 0),
    finished_at INTEGER NOT NULL,
    claimed_at INTEGER,
    worker_id BLOB,
    token BLOB,
    late INTEGER NOT NULL,
    code TEXT,
    message TEXT,
    traceback TEXT,
    result TEXT,
    continued_by BLOB CHECK (length(continued_by) = 16),
    CHECK (token IS NULL OR (state = {succeeded} AND attempt > 0)),
    CHECK (code IS NULL OR state <> {succeeded}),
    CHECK (continued_by IS NULL OR (state = {succeeded} AND token IS NULL))
) WITHOUT ROWID;

-- One for each attempt that did not simply succeed. `token` is there when the holder itself settled.
CREATE TABLE holdfast_attempt (
    job_id BLOB NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt > 0),
    worker_id BLOB NOT NULL,
    claimed_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    event TEXT NOT NULL CHECK (event IN ({leaves_running})),
    token BLOB CHECK (token IS NULL OR event IN ({settles})),
    late INTEGER NOT NULL,
    code TEXT,
    message TEXT,
    traceback TEXT,
    PRIMARY KEY (job_id, attempt)
);
-- for the newest failures; attempts that simply succeeded are not here
CREATE INDEX holdfast_attempt_failed ON holdfast_attempt (ended_at, job_id, attempt) WHERE code IS NOT NULL;

CREATE TABLE holdfast_event (
    job_id BLOB NOT NULL,
    number INTEGER NOT NULL,
    event TEXT NOT NULL CHECK (event IN ({events})),
    at INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ({states})),
    attempt INTEGER NOT NULL,
    actor TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (job_id, number)
) WITHOUT ROWID;

-- Without a rowid: a log is read and deleted as a whole, and so stands together.
CREATE TABLE holdfast_log (
    job_id BLOB NOT NULL,
    number INTEGER NOT NULL,
    at INTEGER NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt > 0),
    level TEXT NOT NULL,
    logger TEXT NOT NULL,
    message TEXT NOT NULL,
    fields TEXT NOT NULL,
    line BLOB CHECK (length(line) = 16),
    PRIMARY KEY (job_id, number)
) WITHOUT ROWID;
-- What its writer calls a line: one that is sent again is there once.
CREATE UNIQUE INDEX holdfast_log_line ON holdfast_log (job_id, line) WHERE line IS NOT NULL;

CREATE TABLE holdfast_part (
    job_id BLOB NOT NULL,
    name TEXT NOT NULL,
    number INTEGER NOT NULL,
    state TEXT NOT NULL,
    done REAL NOT NULL,
    total REAL,
    data TEXT,
    error TEXT,
    started_at INTEGER,
    completed_at INTEGER,
    PRIMARY KEY (job_id, name)
);

CREATE TABLE holdfast_progress (
    job_id BLOB NOT NULL PRIMARY KEY,
    percent REAL NOT NULL,
    step TEXT NOT NULL,
    message TEXT NOT NULL
) WITHOUT ROWID;

-- `until` is NULL while the key is held for as long as the job is live, or the chain that the job is the first step of.
CREATE TABLE holdfast_unique_key (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    job_id BLOB NOT NULL,
    until INTEGER,
    PRIMARY KEY (scope, key)
) WITHOUT ROWID;
CREATE INDEX holdfast_unique_key_job ON holdfast_unique_key (job_id);

-- What the numbers of lanes stand for. `task` is empty for the lane that a fifo queue shares among its tasks. Lanes of retries
-- have no rows of their own.
CREATE TABLE holdfast_lane (
    lane INTEGER PRIMARY KEY CHECK (lane > 0 AND lane % 2 = 0),
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    priority INTEGER NOT NULL,
    requires TEXT NOT NULL
);
-- for the depth of a queue; written once in the life of a lane
CREATE INDEX holdfast_lane_queue ON holdfast_lane (queue);
-- lanes that belong to no key of a limit: there are few of them
CREATE INDEX holdfast_lane_plain ON holdfast_lane (lane) WHERE lane & 2 = 0;

-- The keys of limits in which something waits, or did when last asked: `lane` counts its jobs, from `entry` they are claimed. Who
-- enters a job there writes it, who claims and finds nothing deletes it.
CREATE TABLE holdfast_waiting_key (
    lane INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    PRIMARY KEY (lane, entry)
) WITHOUT ROWID;

CREATE TABLE holdfast_tally (
    lane INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ({states})),
    count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (lane, state)
) WITHOUT ROWID;

-- The paused queues; which queues there are, the lanes know.
CREATE TABLE holdfast_queue (
    name TEXT NOT NULL PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    paused_by TEXT NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;

-- What is said about limits, and what is left in their buckets. Who runs under them is counted from the leases.
CREATE TABLE holdfast_limits (
    id INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('queue', 'task', 'key')),
    name TEXT NOT NULL,
    key TEXT,
    declared TEXT,
    override TEXT,
    override_by TEXT NOT NULL DEFAULT '',
    override_at INTEGER,
    tokens REAL,
    filled_at INTEGER,
    CHECK (key IS NULL OR kind = 'key')
);
-- one row for each key that a rate holds for: what was said stands among many of them
CREATE INDEX holdfast_limits_said ON holdfast_limits (kind, name, key) WHERE declared IS NOT NULL OR override IS NOT NULL;
CREATE INDEX holdfast_limits_unsaid ON holdfast_limits (filled_at) WHERE declared IS NULL AND override IS NULL;

-- Kept for ever, for jobs name who processed them; who is offline for long is `past`, which is neither wide nor listed. The living,
-- whose `offline_at` is empty, are found by the index. With a rowid, because what a worker says of itself may be wide.
CREATE TABLE holdfast_worker (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ({worker_kinds})),
    version TEXT NOT NULL,
    slots INTEGER NOT NULL CHECK (slots >= 0),
    registered_at INTEGER NOT NULL,
    heartbeat_at INTEGER,
    offline_at INTEGER,
    disabled_at INTEGER,
    disabled_by TEXT NOT NULL DEFAULT '',
    draining_at INTEGER,
    counters TEXT NOT NULL DEFAULT '{}',
    capabilities TEXT,
    info TEXT NOT NULL,
    owner TEXT NOT NULL DEFAULT '',
    past INTEGER NOT NULL DEFAULT 0 CHECK (past IN (0, 1))
);
CREATE INDEX holdfast_worker_listed ON holdfast_worker (offline_at, registered_at, id) WHERE past = 0;

CREATE TABLE holdfast_schedule (
    name TEXT NOT NULL PRIMARY KEY,
    task TEXT NOT NULL,
    cron TEXT NOT NULL,
    timezone TEXT NOT NULL,
    spec TEXT NOT NULL,
    next_at INTEGER NOT NULL,
    last_at INTEGER,
    last_job BLOB CHECK (length(last_job) = 16)
) WITHOUT ROWID;

-- Of a key's secret only its SHA-256. `queues` and `actions` are JSON lists; NULL: all.
CREATE TABLE holdfast_key (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ({roles})),
    digest TEXT NOT NULL,
    queues TEXT,
    actions TEXT,
    created_by TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    revoked_by TEXT NOT NULL DEFAULT '',
    used_at INTEGER
);

-- Who did what to what. Lines are added, never changed; those about enqueues, of which machines make many, go when they are old.
-- AUTOINCREMENT: a number is never given twice, also where the newest line has gone.
CREATE TABLE holdfast_audit (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    targets TEXT NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    detail TEXT NOT NULL
);
CREATE TRIGGER holdfast_audit_update BEFORE UPDATE ON holdfast_audit
BEGIN
    SELECT RAISE(ABORT, 'lines of the audit log are never changed');
END;
CREATE INDEX holdfast_audit_action ON holdfast_audit (action, no);
CREATE INDEX holdfast_audit_actor ON holdfast_audit (actor, no);
CREATE TRIGGER holdfast_audit_delete BEFORE DELETE ON holdfast_audit WHEN OLD.action <> 'enqueue'
BEGIN
    SELECT RAISE(ABORT, 'lines of the audit log are never deleted');
END;
-- INSERT OR REPLACE deletes what it replaces without asking the trigger above
CREATE TRIGGER holdfast_audit_replace BEFORE INSERT ON holdfast_audit
WHEN EXISTS (SELECT 1 FROM holdfast_audit WHERE no = NEW.no)
BEGIN
    SELECT RAISE(ABORT, 'lines of the audit log are never replaced');
END;

-- Attempts added up by how they ended, over minutes, hours and all time (`at` is NULL). Histograms are JSON lists.
CREATE TABLE holdfast_figure (
    grain TEXT NOT NULL CHECK (grain IN ({grains})),
    at INTEGER,
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    event TEXT NOT NULL,
    code TEXT NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    waited REAL NOT NULL,
    ran REAL NOT NULL,
    waits TEXT NOT NULL,
    runs TEXT NOT NULL
);
CREATE UNIQUE INDEX holdfast_figure_key ON holdfast_figure (grain, coalesce(at, 0), queue, task, event, code);

INSERT INTO holdfast_meta (one, version, number) VALUES (1, 0, 0);
