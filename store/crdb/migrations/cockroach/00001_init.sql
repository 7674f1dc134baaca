-- The tables of migrations/postgres. Not in one transaction, as CockroachDB changes schemas in the background: so each statement may be repeated.

-- +goose NO TRANSACTION
-- +goose Up
CREATE TABLE IF NOT EXISTS jobs (
    job_id          UUID  NOT NULL PRIMARY KEY,
    namespace       TEXT  NOT NULL,
    name            TEXT,
    shard           INT4  NOT NULL,
    version         INT8  NOT NULL,
    state           TEXT  NOT NULL,
    kind            TEXT  NOT NULL,
    queue           TEXT  NOT NULL,
    queue_namespace TEXT  NOT NULL,
    priority        INT4  NOT NULL,
    spec            TEXT  NOT NULL,
    labels          JSONB NOT NULL,
    recurring       BOOL  NOT NULL,
    body_hash       BYTEA NOT NULL,
    due_at          INT8  NOT NULL,
    paused_by       TEXT  NOT NULL,
    paused_at       INT8  NOT NULL,
    pause_note      TEXT  NOT NULL,
    created_at      INT8  NOT NULL,
    updated_at      INT8  NOT NULL
);

CREATE UNIQUE INDEX IF NOT EXISTS jobs_name ON jobs (namespace, name) WHERE name IS NOT NULL AND state <> 'deleted';

-- Hashed, as the newest jobs of a namespace would all go to one range.
CREATE INDEX IF NOT EXISTS jobs_list ON jobs (namespace, created_at DESC, job_id DESC) USING HASH;

CREATE INDEX IF NOT EXISTS jobs_sweep ON jobs (shard, job_id) WHERE recurring AND state = 'active';

-- Only where there is one: most jobs have none, and lists do not read it.
CREATE TABLE IF NOT EXISTS payloads (
    job_id  UUID  NOT NULL PRIMARY KEY,
    version INT8  NOT NULL,
    body    BYTEA NOT NULL
);

CREATE TABLE IF NOT EXISTS timers (
    shard           INT4 NOT NULL,
    bucket          INT8 NOT NULL,
    due_at          INT8 NOT NULL,
    run_id          UUID NOT NULL,
    job_id          UUID NOT NULL,
    namespace       TEXT NOT NULL,
    queue_namespace TEXT NOT NULL,
    queue           TEXT NOT NULL,
    priority        INT4 NOT NULL,
    kind            TEXT NOT NULL,
    step            INT4 NOT NULL,
    origin          TEXT NOT NULL,
    scheduled_at    INT8 NOT NULL,
    civil           TEXT NOT NULL,
    attempt         INT4 NOT NULL,
    version         INT8 NOT NULL,
    dispatch        INT8 NOT NULL,
    dispatched_at   INT8 NOT NULL,
    started_at      INT8 NOT NULL,
    executor        TEXT NOT NULL,
    generation      INT8 NOT NULL,
    cancel_at       INT8 NOT NULL,
    wait_reason     TEXT NOT NULL,
    last_error      TEXT NOT NULL,
    recurring       BOOL NOT NULL,
    listed          BOOL NOT NULL,
    followed        BOOL NOT NULL,
    mark_id         INT8,
    PRIMARY KEY (shard, bucket, due_at, run_id)
);

CREATE INDEX IF NOT EXISTS timers_listed ON timers (job_id, scheduled_at) WHERE listed;

CREATE TABLE IF NOT EXISTS runs (
    job_id       UUID  NOT NULL,
    scheduled_at INT8  NOT NULL,
    run_id       UUID  NOT NULL,
    attempt      INT4  NOT NULL,
    namespace    TEXT  NOT NULL,
    queue        TEXT  NOT NULL,
    priority     INT4  NOT NULL,
    kind         TEXT  NOT NULL,
    origin       TEXT  NOT NULL,
    civil        TEXT  NOT NULL,
    due_at       INT8  NOT NULL,
    dispatch     INT8  NOT NULL,
    executor     TEXT  NOT NULL,
    started_at   INT8  NOT NULL,
    ended_at     INT8  NOT NULL,
    step         INT4  NOT NULL,
    final        BOOL  NOT NULL,
    reason       TEXT  NOT NULL,
    message      TEXT  NOT NULL,
    code         INT4  NOT NULL,
    result       BYTEA NOT NULL,
    result_ref   TEXT  NOT NULL,
    log_ref      TEXT  NOT NULL,
    PRIMARY KEY (job_id, scheduled_at DESC, run_id DESC, attempt)
);

-- 7 is the number of the step "failed".
CREATE INDEX IF NOT EXISTS runs_failed ON runs (namespace, ended_at DESC, run_id DESC) WHERE final AND step = 7;

CREATE TABLE IF NOT EXISTS skips (
    job_id     UUID NOT NULL,
    nominal_at INT8 NOT NULL,
    through_at INT8 NOT NULL,
    count      INT8 NOT NULL,
    reason     TEXT NOT NULL,
    at         INT8 NOT NULL,
    PRIMARY KEY (job_id, nominal_at DESC)
);

CREATE TABLE IF NOT EXISTS members (
    member_id  TEXT NOT NULL PRIMARY KEY,
    host       TEXT NOT NULL,
    renewed_at INT8 NOT NULL
);

CREATE TABLE IF NOT EXISTS shards (
    shard      INT4 NOT NULL PRIMARY KEY,
    owner      TEXT NOT NULL,
    epoch      INT8 NOT NULL,
    checkpoint INT8 NOT NULL
);

INSERT INTO shards (shard, owner, epoch, checkpoint) SELECT g, '', 0, 0 FROM generate_series(0, 63) AS s(g) ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS streams (
    name       TEXT NOT NULL PRIMARY KEY,
    generation INT8 NOT NULL,
    last_seq   INT8 NOT NULL
);

CREATE TABLE IF NOT EXISTS namespaces (
    namespace  TEXT NOT NULL PRIMARY KEY,
    created_at INT8 NOT NULL
);

CREATE TABLE IF NOT EXISTS api_keys (
    key_id     TEXT  NOT NULL PRIMARY KEY,
    namespace  TEXT  NOT NULL,
    note       TEXT  NOT NULL,
    hash       BYTEA NOT NULL,
    created_at INT8  NOT NULL,
    revoked_at INT8  NOT NULL,
    expires_at INT8  NOT NULL
);

CREATE TABLE IF NOT EXISTS queues (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
);

INSERT INTO queues (namespace, name) VALUES ('_', 'default') ON CONFLICT DO NOTHING;

CREATE TABLE IF NOT EXISTS cluster (
    one      INT4  NOT NULL PRIMARY KEY CHECK (one = 1),
    store_id UUID  NOT NULL,
    key      BYTEA NOT NULL,
    pings    INT8  NOT NULL
);

-- +goose Down
DROP TABLE IF EXISTS cluster;
DROP TABLE IF EXISTS queues;
DROP TABLE IF EXISTS api_keys;
DROP TABLE IF EXISTS namespaces;
DROP TABLE IF EXISTS streams;
DROP TABLE IF EXISTS shards;
DROP TABLE IF EXISTS members;
DROP TABLE IF EXISTS skips;
DROP TABLE IF EXISTS runs;
DROP TABLE IF EXISTS timers;
DROP TABLE IF EXISTS payloads;
DROP TABLE IF EXISTS jobs;
