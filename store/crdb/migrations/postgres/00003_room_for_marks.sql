-- +goose Up
-- Half of each page is left free, so that a mark finds room for the row's new version beside the old one: then no index is written.
ALTER TABLE timers SET (fillfactor = 50);

-- +goose Down
ALTER TABLE timers RESET (fillfactor);
