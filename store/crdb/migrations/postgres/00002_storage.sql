-- +goose Up

-- A timer is written three times and deleted: room on its page keeps the writes from touching the indexes (20 % of the throughput), and dead rows are
-- taken away long before the defaults would (a fifth of the table), as the due-scan has to step over them. Statistics of it are of no use: see dialect.go.
ALTER TABLE timers SET (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.01,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 1
);

-- Rows of history and skips are only added, so their place follows their time: a few bytes per 128 pages find what is old.
CREATE INDEX runs_ended ON runs USING brin (ended_at) WITH (autosummarize = on);
CREATE INDEX skips_at ON skips USING brin (at) WITH (autosummarize = on);

-- +goose Down
DROP INDEX skips_at;
DROP INDEX runs_ended;
ALTER TABLE timers RESET (fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay);
