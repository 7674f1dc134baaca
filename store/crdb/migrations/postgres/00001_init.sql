-- Times are microseconds since 1970, 0 for none. What CockroachDB has no word for is in 00002.

-- +goose Up
CREATE TABLE jobs (
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

CREATE UNIQUE INDEX jobs_name ON jobs (namespace, name) WHERE name IS NOT NULL AND state <> 'deleted';

-- Without the id, by which pages go on too: PostgreSQL would take the index for look-ups by id while the table is small, and keep to that.
CREATE INDEX jobs_list ON jobs (namespace, created_at DESC);

CREATE INDEX jobs_sweep ON jobs (shard, job_id) WHERE recurring AND state = 'active';

-- Only where there is one: most jobs have none, and lists do not read it.
CREATE TABLE payloads (
    job_id  UUID  NOT NULL PRIMARY KEY,
    version INT8  NOT NULL,
    body    BYTEA NOT NULL
);

CREATE TABLE timers (
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

CREATE INDEX timers_listed ON timers (job_id, scheduled_at) WHERE listed;

CREATE TABLE runs (
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
    PRIMARY KEY (job_id, scheduled_at, run_id, attempt)
);

-- 7 is the number of the step "failed".
CREATE INDEX runs_failed ON runs (namespace, ended_at DESC, run_id DESC) WHERE final AND step = 7;

CREATE TABLE skips (
    job_id     UUID NOT NULL,
    nominal_at INT8 NOT NULL,
    through_at INT8 NOT NULL,
    count      INT8 NOT NULL,
    reason     TEXT NOT NULL,
    at         INT8 NOT NULL,
    PRIMARY KEY (job_id, nominal_at)
);

CREATE TABLE members (
    member_id  TEXT NOT NULL PRIMARY KEY,
    host       TEXT NOT NULL,
    renewed_at INT8 NOT NULL
);

CREATE TABLE shards (
    shard      INT4 NOT NULL PRIMARY KEY,
    owner      TEXT NOT NULL,
    epoch      INT8 NOT NULL,
    checkpoint INT8 NOT NULL
);

INSERT INTO shards (shard, owner, epoch, checkpoint) SELECT g, '', 0, 0 FROM generate_series(0, 63) AS s(g) ON CONFLICT DO NOTHING;

CREATE TABLE streams (
    name       TEXT NOT NULL PRIMARY KEY,
    generation INT8 NOT NULL,
    last_seq   INT8 NOT NULL
);

CREATE TABLE namespaces (
    namespace  TEXT NOT NULL PRIMARY KEY,
    created_at INT8 NOT NULL
);

CREATE TABLE api_keys (
    key_id     TEXT  NOT NULL PRIMARY KEY,
    namespace  TEXT  NOT NULL,
    note       TEXT  NOT NULL,
    hash       BYTEA NOT NULL,
    created_at INT8  NOT NULL,
    revoked_at INT8  NOT NULL,
    expires_at INT8  NOT NULL
);

CREATE TABLE queues (
    namespace TEXT NOT NULL,
    name      TEXT NOT NULL,
    PRIMARY KEY (namespace, name)
);

INSERT INTO queues (namespace, name) VALUES ('_', 'default') ON CONFLICT DO NOTHING;

CREATE TABLE cluster (
    one      INT4  NOT NULL PRIMARY KEY CHECK (one = 1),
    store_id UUID  NOT NULL,
    key      BYTEA NOT NULL,
    pings    INT8  NOT NULL
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
