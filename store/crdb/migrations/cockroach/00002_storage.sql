-- +goose NO TRANSACTION
-- +goose Up

-- A range of its own for each shard from the first row on: shards are what planners own and what writes spread over.
ALTER TABLE timers SPLIT AT VALUES
    (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14), (15), (16), (17), (18), (19), (20), (21), (22), (23), (24),
    (25), (26), (27), (28), (29), (30), (31), (32), (33), (34), (35), (36), (37), (38), (39), (40), (41), (42), (43), (44), (45), (46),
    (47), (48), (49), (50), (51), (52), (53), (54), (55), (56), (57), (58), (59), (60), (61), (62), (63);

-- The longest that history is kept; what is to go earlier is purged. 31622400 seconds are 366 days.
ALTER TABLE runs SET (ttl_expiration_expression = 'to_timestamp((ended_at / 1000000 + 31622400)::FLOAT8)', ttl_job_cron = '@daily');
ALTER TABLE skips SET (ttl_expiration_expression = 'to_timestamp((at / 1000000 + 31622400)::FLOAT8)', ttl_job_cron = '@daily');

-- +goose Down
ALTER TABLE skips RESET (ttl);
ALTER TABLE runs RESET (ttl);
ALTER TABLE timers UNSPLIT ALL;
