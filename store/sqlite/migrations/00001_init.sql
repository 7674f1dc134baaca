-- Times are microseconds since 1970, 0 for none. Ids are 16 bytes.

-- +goose Up
CREATE TABLE jobs (
    job_id          BLOB    NOT NULL PRIMARY KEY,
    namespace       TEXT    NOT NULL,
    name            TEXT,
    shard           INTEGER NOT NULL,
    version         INTEGER NOT NULL,
    state           TEXT    NOT NULL,
    kind            TEXT    NOT NULL,
    queue           TEXT    NOT NULL,
    queue_namespace TEXT    NOT NULL,
    priority        INTEGER NOT NULL,
    spec            TEXT    NOT NULL,
    labels          TEXT    NOT NULL,
    recurring       INTEGER NOT NULL,
    body_hash       BLOB,
    due_at          INTEGER NOT NULL,
    paused_by       TEXT    NOT NULL,
    paused_at       INTEGER NOT NULL,
    pause_note      TEXT    NOT NULL,
    created_at      INTEGER NOT NULL,
    updated_at      INTEGER NOT NULL
) WITHOUT ROWID;

CREATE UNIQUE INDEX jobs_name ON jobs (namespace, name) WHERE name IS NOT NULL AND state <> 'deleted';

CREATE INDEX jobs_list ON jobs (namespace, created_at DESC, job_id DESC);

CREATE INDEX jobs_sweep ON jobs (shard, job_id) WHERE recurring AND state = 'active';

-- Payloads are read at hand-over only; beside the job they would make every page of jobs hold fewer rows.
CREATE TABLE payloads (
    job_id  BLOB    NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL,
    body    BLOB    NOT NULL
);

CREATE TABLE timers (
    shard           INTEGER NOT NULL,
    bucket          INTEGER NOT NULL,
    due_at          INTEGER NOT NULL,
    run_id          BLOB    NOT NULL,
    job_id          BLOB    NOT NULL,
    namespace       TEXT    NOT NULL,
    queue_namespace TEXT    NOT NULL,
    queue           TEXT    NOT NULL,
    priority        INTEGER NOT NULL,
    kind            TEXT    NOT NULL,
    step            INTEGER NOT NULL,
    origin          TEXT    NOT NULL,
    scheduled_at    INTEGER NOT NULL,
    civil           TEXT    NOT NULL,
    attempt         INTEGER NOT NULL,
    version         INTEGER NOT NULL,
    dispatch        INTEGER NOT NULL,
    dispatched_at   INTEGER NOT NULL,
    started_at      INTEGER NOT NULL,
    executor        TEXT    NOT NULL,
    generation      INTEGER NOT NULL,
    cancel_at       INTEGER NOT NULL,
    wait_reason     TEXT    NOT NULL,
    last_error      TEXT    NOT NULL,
    recurring       INTEGER NOT NULL,
    followed        INTEGER NOT NULL,
    listed          INTEGER NOT NULL,
    mark_id         INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (shard, bucket, due_at, run_id)
) WITHOUT ROWID;

CREATE INDEX timers_listed ON timers (job_id, scheduled_at) WHERE listed;

CREATE TABLE runs (
    job_id       BLOB    NOT NULL,
    scheduled_at INTEGER NOT NULL,
    run_id       BLOB    NOT NULL,
    attempt      INTEGER NOT NULL,
    namespace    TEXT    NOT NULL,
    queue        TEXT    NOT NULL,
    priority     INTEGER NOT NULL,
    kind         TEXT    NOT NULL,
    origin       TEXT    NOT NULL,
    civil        TEXT    NOT NULL,
    due_at       INTEGER NOT NULL,
    dispatch     INTEGER NOT NULL,
    executor     TEXT    NOT NULL,
    started_at   INTEGER NOT NULL,
    ended_at     INTEGER NOT NULL,
    step         INTEGER NOT NULL,
    final        INTEGER NOT NULL,
    reason       TEXT    NOT NULL,
    message      TEXT    NOT NULL,
    code         INTEGER NOT NULL,
    result       BLOB,
    result_ref   TEXT    NOT NULL,
    log_ref      TEXT    NOT NULL,
    PRIMARY KEY (job_id, scheduled_at DESC, run_id DESC, attempt)
) WITHOUT ROWID;

-- 7 is the number of the step "failed".
CREATE INDEX runs_failed ON runs (namespace, ended_at DESC, run_id DESC) WHERE final AND step = 7;

CREATE TABLE skips (
    job_id     BLOB    NOT NULL,
    nominal_at INTEGER NOT NULL,
    through_at INTEGER NOT NULL,
    count      INTEGER NOT NULL,
    reason     TEXT    NOT NULL,
    at         INTEGER NOT NULL,
    PRIMARY KEY (job_id, nominal_at DESC)
) WITHOUT ROWID;

CREATE TABLE members (
    member_id  TEXT    NOT NULL PRIMARY KEY,
    host       TEXT    NOT NULL,
    renewed_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE shards (
    shard      INTEGER NOT NULL PRIMARY KEY,
    owner      TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    checkpoint INTEGER NOT NULL
);

INSERT INTO shards VALUES (0, '', 0, 0);

CREATE TABLE streams (
    name       TEXT    NOT NULL PRIMARY KEY,
    generation INTEGER NOT NULL,
    last_seq   INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE namespaces (
    namespace  TEXT    NOT NULL PRIMARY KEY,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE api_keys (
    key_id     TEXT    NOT NULL PRIMARY KEY,
    namespace  TEXT    NOT NULL,
    note       TEXT    NOT NULL,
    hash       BLOB    NOT NULL,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE queues (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;

INSERT INTO queues VALUES ('_', 'default');

CREATE TABLE cluster (
    one      INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    store_id BLOB    NOT NULL,
    key      BLOB    NOT NULL,
    pings    INTEGER NOT NULL
);

-- +goose Down
DROP TABLE cluster;
DROP TABLE queues;
DROP TABLE api_keys;
DROP TABLE namespaces;
DROP TABLE streams;
DROP TABLE shards;
DROP TABLE members;
DROP TABLE skips;
DROP TABLE runs;
DROP TABLE timers;
DROP TABLE payloads;
DROP TABLE jobs;
