package crdb

import (
	"context"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// tap hears what is sent. All that the store sends goes through pgx's batches, each one round trip.
type tap struct {
	trips [][]string // the names of the statements of each
	rows  map[string]int64
	texts map[string]string // by name, as first sent
	stray []string          // texts that the catalogue does not know
}

func (p *tap) reset() { p.trips, p.rows = nil, map[string]int64{} }

// TraceQueryStart and TraceQueryEnd implement pgx.QueryTracer: what goes that way is the test's own.
func (p *tap) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (p *tap) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart, TraceBatchQuery and TraceBatchEnd implement pgx.BatchTracer.
func (p *tap) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	p.trips = append(p.trips, nil)
	return ctx
}

func (p *tap) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	name := nameOf(data.SQL)
	if name == "" {
		p.stray = append(p.stray, data.SQL)
	}
	last := len(p.trips) - 1
	p.trips[last] = append(p.trips[last], name)
	p.rows[name] += data.CommandTag.RowsAffected()
	if p.texts[name] == "" {
		p.texts[name] = data.SQL
	}
}

func (p *tap) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// openTapped opens a store with one connection for each of its pools, all of it heard by a tap.
func openTapped(t *testing.T, dsn string, level Isolation) (*Store, *tap) {
	t.Helper()
	s := open(t, dsn, Options{Isolation: level, MaxConns: 1, ReadConns: 1})
	p := &tap{texts: map[string]string{}}
	p.reset()
	for _, pool := range []**pgxpool.Pool{&s.hot, &s.lists} {
		cfg := (*pool).Config()
		cfg.ConnConfig.Tracer = p
		tapped, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		(*pool).Close()
		*pool = tapped
	}
	return s, p
}

// What is counted of a table.
type counts struct {
	read, inserted, updated, hot, deleted, locked, confirmed int64
	lookups, entries                                         map[string]int64 // by index
	scans                                                    int64
}

// meter reads PostgreSQL's own counters and its log.
type meter struct {
	conn *pgx.Conn
	s    *Store
	from string // place in the log
	last map[string]counts
}

func newMeter(t *testing.T, dsn string, s *Store) *meter {
	t.Helper()
	m := &meter{conn: rawConn(t, dsn), s: s}
	if _, err := m.conn.Exec(t.Context(), "CREATE EXTENSION pg_walinspect"); err != nil {
		if ci, _ := strconv.ParseBool(os.Getenv("CI")); ci {
			t.Fatalf("PostgreSQL is without pg_walinspect; CI is true, so this fails: %v", err)
		}
		t.Skipf("NOT TESTED: the statements' counts need PostgreSQL 15 or later with its contributed modules (pg_walinspect): %v", err)
	}
	return m
}

const (
	tableCounters = "SELECT relname, COALESCE(idx_tup_fetch, 0), n_tup_ins, n_tup_upd, n_tup_hot_upd, n_tup_del, seq_scan FROM pg_stat_user_tables"
	indexCounters = "SELECT relname, indexrelname, idx_scan FROM pg_stat_user_indexes WHERE idx_scan > 0"
	// Records of the log by relation. A new entry in a leaf is one record, of which some split the leaf; what goes to inner pages is left out.
	logRecords = `SELECT COALESCE(t.relname, c.relname), CASE WHEN t.oid IS NULL THEN '' ELSE c.relname END, w.resource_manager || ' ' || w.record_type, count(*)
		FROM pg_get_wal_records_info($1::text::pg_lsn, $2::text::pg_lsn) AS w
		CROSS JOIN LATERAL regexp_match(w.block_ref, 'rel \d+/(\d+)/(\d+) ') AS m
		JOIN pg_class AS c ON pg_relation_filenode(c.oid) = m[2]::oid AND c.relnamespace = 'public'::regnamespace
		LEFT JOIN pg_index AS i ON i.indexrelid = c.oid LEFT JOIN pg_class AS t ON t.oid = i.indrelid
		WHERE m[1]::oid = (SELECT oid FROM pg_database WHERE datname = current_database()) GROUP BY 1, 2, 3`
)

// begin notes where everything stands.
func (m *meter) begin(t *testing.T) {
	t.Helper()
	m.last = m.counters(t)
	if err := m.conn.QueryRow(t.Context(), "SELECT pg_current_wal_flush_lsn()::text").Scan(&m.from); err != nil {
		t.Fatal(err)
	}
}

// end returns what was touched since.
func (m *meter) end(t *testing.T) map[string]counts {
	t.Helper()
	touched := map[string]counts{}
	for table, now := range m.counters(t) {
		was := m.last[table]
		c := counts{
			read: now.read - was.read, inserted: now.inserted - was.inserted, updated: now.updated - was.updated, hot: now.hot - was.hot,
			deleted: now.deleted - was.deleted, scans: now.scans - was.scans, lookups: map[string]int64{}, entries: map[string]int64{},
		}
		for index, n := range now.lookups {
			if n -= was.lookups[index]; n > 0 {
				c.lookups[index] = n
			}
		}
		touched[table] = c
	}
	m.log(t, touched)
	for table, c := range touched {
		if c.read+c.inserted+c.updated+c.deleted+c.locked+c.scans == 0 && len(c.lookups)+len(c.entries) == 0 {
			delete(touched, table)
		}
	}
	return touched
}

func (m *meter) log(t *testing.T, touched map[string]counts) {
	t.Helper()
	var to string
	if err := m.conn.QueryRow(t.Context(), "SELECT pg_current_wal_flush_lsn()::text").Scan(&to); err != nil {
		t.Fatal(err)
	}
	if to == m.from {
		return // nothing was written
	}
	rows, err := m.conn.Query(t.Context(), logRecords, m.from, to)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (none struct{}, err error) {
		var table, index, record string
		var n int64
		if err := r.Scan(&table, &index, &record, &n); err != nil {
			return none, err
		}
		c := touched[table]
		switch kind, _, _ := strings.Cut(record, "+"); kind {
		case "Heap LOCK":
			c.locked += n
		case "Heap HEAP_CONFIRM":
			c.confirmed += n
		case "Btree INSERT_LEAF", "Btree INSERT_POST", "Btree SPLIT_L", "Btree SPLIT_R":
			c.entries[index] += n
		}
		touched[table] = c
		return none, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// counters makes the sessions report what they did, its own among them, which empties tables, and reads it.
func (m *meter) counters(t *testing.T) map[string]counts {
	t.Helper()
	for _, session := range []interface {
		Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error)
	}{m.s.hot, m.s.lists, m.conn} {
		if _, err := session.Exec(t.Context(), "SELECT pg_stat_force_next_flush()"); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]counts{}
	rows, err := m.conn.Query(t.Context(), tableCounters)
	if err != nil {
		t.Fatal(err)
	}
	_, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (none struct{}, err error) {
		table, c := "", counts{lookups: map[string]int64{}}
		err = r.Scan(&table, &c.read, &c.inserted, &c.updated, &c.hot, &c.deleted, &c.scans)
		all[table] = c
		return none, err
	})
	if err != nil {
		t.Fatal(err)
	}
	if rows, err = m.conn.Query(t.Context(), indexCounters); err != nil {
		t.Fatal(err)
	}
	_, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (none struct{}, err error) {
		var table, index string
		var n int64
		err = r.Scan(&table, &index, &n)
		all[table].lookups[index] = n
		return none, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// measured is one step at one size.
type measured struct {
	n       int
	trips   [][]string
	rows    map[string]int64
	touched map[string]counts
}

// measure does a step and counts.
func (m *meter) measure(t *testing.T, p *tap, n int, do func()) measured {
	t.Helper()
	m.begin(t)
	p.reset()
	do()
	got := measured{n: n, trips: p.trips, rows: p.rows, touched: m.end(t)}
	p.reset()
	return got
}
