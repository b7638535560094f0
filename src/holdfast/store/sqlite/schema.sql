CREATE TABLE holdfast_archive (
    job_id BLOB NOT NULL PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('succeeded', 'failed', 'canceled')),
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
    CHECK (token IS NULL OR (state = 'succeeded' AND attempt > 0)),
    CHECK (code IS NULL OR state <> 'succeeded'),
    CHECK (continued_by IS NULL OR (state = 'succeeded' AND token IS NULL))
) WITHOUT ROWID;

CREATE TABLE holdfast_attempt (
    job_id BLOB NOT NULL,
    attempt INTEGER NOT NULL CHECK (attempt > 0),
    worker_id BLOB NOT NULL,
    claimed_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    event TEXT NOT NULL CHECK (event IN ('completed:outside', 'failed:outside', 'requeued:stale', 'requeued:stale:later', 'failed:stale', 'canceled:stale', 'succeeded', 'continued', 'suspended', 'failed', 'canceled', 'retried', 'retried:later', 'rescheduled', 'rescheduled:later', 'released', 'aborted:shutdown')),
    token BLOB CHECK (token IS NULL OR event IN ('succeeded', 'continued', 'suspended', 'failed', 'canceled', 'retried', 'retried:later', 'rescheduled', 'rescheduled:later', 'released', 'aborted:shutdown')),
    late INTEGER NOT NULL,
    code TEXT,
    message TEXT,
    traceback TEXT,
    PRIMARY KEY (job_id, attempt)
);

CREATE INDEX holdfast_attempt_failed ON holdfast_attempt (ended_at, job_id, attempt) WHERE code IS NOT NULL;

CREATE TABLE holdfast_audit (
    no INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    action TEXT NOT NULL,
    targets TEXT NOT NULL,
    count INTEGER NOT NULL CHECK (count >= 0),
    detail TEXT NOT NULL
);

CREATE INDEX holdfast_audit_action ON holdfast_audit (action, no);

CREATE INDEX holdfast_audit_actor ON holdfast_audit (actor, no);

CREATE TRIGGER holdfast_audit_delete BEFORE DELETE ON holdfast_audit WHEN OLD.action <> 'enqueue'
BEGIN
    SELECT RAISE(ABORT, 'lines of the audit log are never deleted');
END;

CREATE TRIGGER holdfast_audit_replace BEFORE INSERT ON holdfast_audit
WHEN EXISTS (SELECT 1 FROM holdfast_audit WHERE no = NEW.no)
BEGIN
    SELECT RAISE(ABORT, 'lines of the audit log are never replaced');
END;

CREATE TRIGGER holdfast_audit_update BEFORE UPDATE ON holdfast_audit
BEGIN
    SELECT RAISE(ABORT, 'lines of the audit log are never changed');
END;

CREATE TABLE holdfast_blocked (
    job_id BLOB NOT NULL PRIMARY KEY,
    run_at INTEGER
) WITHOUT ROWID;

CREATE TABLE holdfast_blocker (
    blocker_id BLOB NOT NULL,
    waiter_id BLOB NOT NULL,
    position INTEGER NOT NULL,
    ended INTEGER NOT NULL CHECK (ended IN (0, 1)),
    PRIMARY KEY (blocker_id, waiter_id)
) WITHOUT ROWID;

CREATE INDEX holdfast_blocker_of ON holdfast_blocker (waiter_id, ended, position);

CREATE TABLE holdfast_chain (
    id BLOB NOT NULL PRIMARY KEY,
    step BLOB NOT NULL CHECK (length(step) = 16),
    steps INTEGER NOT NULL CHECK (steps > 0)
) WITHOUT ROWID;

CREATE TABLE holdfast_deadline (
    start_by INTEGER NOT NULL,
    job_id BLOB NOT NULL,
    PRIMARY KEY (start_by, job_id)
) WITHOUT ROWID;

CREATE UNIQUE INDEX holdfast_deadline_job ON holdfast_deadline (job_id);

CREATE TABLE holdfast_event (
    job_id BLOB NOT NULL,
    number INTEGER NOT NULL,
    event TEXT NOT NULL CHECK (event IN ('enqueued', 'enqueued:later', 'enqueued:blocked', 'cancel', 'completed:outside', 'failed:outside', 'reopened', 'promoted', 'unblocked', 'unblocked:later', 'woken', 'failed:blocker', 'canceled:blocker', 'requeued:stale', 'requeued:stale:later', 'failed:stale', 'canceled:stale', 'canceled:expired', 'claimed', 'extended', 'progressed', 'checkpointed', 'logged', 'stage:entered', 'stage:left', 'stage:failed', 'enqueued:child', 'succeeded', 'continued', 'suspended', 'failed', 'canceled', 'retried', 'retried:later', 'rescheduled', 'rescheduled:later', 'released', 'aborted:shutdown')),
    at INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('blocked', 'scheduled', 'ready', 'running', 'succeeded', 'failed', 'canceled')),
    attempt INTEGER NOT NULL,
    actor TEXT NOT NULL,
    detail TEXT NOT NULL,
    PRIMARY KEY (job_id, number)
) WITHOUT ROWID;

CREATE TABLE holdfast_figure (
    grain TEXT NOT NULL CHECK (grain IN ('minute', 'hour', 'all')),
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

CREATE TABLE holdfast_job (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    born TEXT NOT NULL CHECK (born IN ('enqueued', 'enqueued:later', 'enqueued:blocked')),
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

CREATE TABLE holdfast_key (
    id TEXT NOT NULL PRIMARY KEY,
    name TEXT NOT NULL,
    role TEXT NOT NULL CHECK (role IN ('viewer', 'operator', 'admin', 'worker', 'client')),
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

CREATE TABLE holdfast_lane (
    lane INTEGER PRIMARY KEY CHECK (lane > 0 AND lane % 2 = 0),
    queue TEXT NOT NULL,
    task TEXT NOT NULL,
    priority INTEGER NOT NULL,
    requires TEXT NOT NULL
);

CREATE INDEX holdfast_lane_plain ON holdfast_lane (lane) WHERE lane & 2 = 0;

CREATE INDEX holdfast_lane_queue ON holdfast_lane (queue);

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

CREATE INDEX holdfast_limits_said ON holdfast_limits (kind, name, key) WHERE declared IS NOT NULL OR override IS NOT NULL;

CREATE INDEX holdfast_limits_unsaid ON holdfast_limits (filled_at) WHERE declared IS NULL AND override IS NULL;

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

CREATE UNIQUE INDEX holdfast_log_line ON holdfast_log (job_id, line) WHERE line IS NOT NULL;

CREATE TABLE holdfast_meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    number INTEGER NOT NULL
);

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

CREATE TABLE holdfast_queue (
    name TEXT NOT NULL PRIMARY KEY,
    paused_at INTEGER NOT NULL,
    paused_by TEXT NOT NULL,
    reason TEXT NOT NULL
) WITHOUT ROWID;

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

CREATE TABLE holdfast_signal (
    name TEXT NOT NULL PRIMARY KEY,
    data TEXT NOT NULL,
    emitted_at INTEGER NOT NULL,
    emitted_by TEXT NOT NULL
);

CREATE INDEX holdfast_signal_age ON holdfast_signal (emitted_at);

CREATE TABLE holdfast_tally (
    lane INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('blocked', 'scheduled', 'ready', 'running', 'succeeded', 'failed', 'canceled')),
    count INTEGER NOT NULL CHECK (count >= 0),
    PRIMARY KEY (lane, state)
) WITHOUT ROWID;

CREATE TABLE holdfast_unique_key (
    scope TEXT NOT NULL,
    key TEXT NOT NULL,
    job_id BLOB NOT NULL,
    until INTEGER,
    PRIMARY KEY (scope, key)
) WITHOUT ROWID;

CREATE INDEX holdfast_unique_key_job ON holdfast_unique_key (job_id);

CREATE TABLE holdfast_waiting_key (
    lane INTEGER NOT NULL,
    entry INTEGER NOT NULL,
    PRIMARY KEY (lane, entry)
) WITHOUT ROWID;

CREATE TABLE holdfast_worker (
    id BLOB NOT NULL PRIMARY KEY CHECK (length(id) = 16),
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('local', 'remote')),
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

