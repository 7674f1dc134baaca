package crdb

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// dialect is the database behind the wire.
type dialect int8

const (
	postgres dialect = iota + 1
	cockroach
)

func (d dialect) name() string {
	if d == cockroach {
		return "cockroach"
	}
	return "postgres"
}

// The limits of a call.
const (
	// callLimit is how long a call may take with all its repetitions.
	callLimit = 10 * time.Second
	// serverLimit makes the server end what a process left behind: it would hold row locks for ever.
	serverLimit = "15000" // ms
	// connectLimit bounds one attempt to connect.
	connectLimit = 5 * time.Second
)

// parseDSN reads the address of a database.
func parseDSN(dsn string) (*pgx.ConnConfig, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		// The error of net/url repeats its input, which may hold a password.
		return nil, errors.New("dsn: not a URL; it must be postgres://user@host:port/database or cockroach://…")
	}
	switch u.Scheme {
	case "postgres", "postgresql":
	case "cockroach", "cockroachdb":
		u.Scheme = "postgres"
	default:
		return nil, fmt.Errorf("dsn: scheme %q is not known; it must be postgres or cockroach", u.Scheme)
	}
	cfg, err := pgx.ParseConfig(u.String())
	if err != nil {
		return nil, fmt.Errorf("dsn: %w", err)
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = connectLimit
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "waterclock"
	}
	return cfg, nil
}

// detect asks the database which one it is.
func detect(ctx context.Context, base *pgx.ConnConfig) (d dialect, err error) {
	conn, err := pgx.ConnectConfig(ctx, base.Copy())
	if err != nil {
		return 0, err
	}
	defer func() {
		if closing := conn.Close(ctx); err == nil {
			err = closing
		}
	}()
	var version string
	if err := conn.QueryRow(ctx, "SELECT version()").Scan(&version); err != nil {
		return 0, err
	}
	if strings.HasPrefix(version, "CockroachDB") {
		return cockroach, nil
	}
	return postgres, nil
}

// settings are what every connection of a pool is opened with.
func settings(d dialect, opts Options, lists bool) map[string]string {
	set := map[string]string{
		"statement_timeout":                   serverLimit,
		"idle_in_transaction_session_timeout": serverLimit,
		"timezone":                            "UTC",
	}
	if opts.Isolation != "" {
		set["default_transaction_isolation"] = string(opts.Isolation)
	}
	if d == cockroach {
		if lists && opts.FollowerReads {
			set["default_transaction_use_follower_reads"] = "on"
		}
		return set
	}
	if opts.Isolation == "" {
		set["default_transaction_isolation"] = string(ReadCommitted)
	}
	// Plans must not follow statistics: those taken while no row was dispatched make a scan of the whole table out of a delete by key, and at
	// SERIALIZABLE a sequential scan conflicts with every write to the table. What is left is nested loops over indexes, which is what every statement
	// here is written for. A walk along a whole index instead of look-ups by key is kept away by how joins are written: see plain.
	set["plan_cache_mode"] = "force_generic_plan"
	for _, s := range []string{"enable_seqscan", "enable_hashjoin", "enable_mergejoin", "jit"} {
		set[s] = "off"
	}
	return set
}

func openPool(ctx context.Context, base *pgx.ConnConfig, d dialect, opts Options, lists bool) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig("")
	if err != nil {
		return nil, fmt.Errorf("make pool: %w", err)
	}
	cfg.ConnConfig = base.Copy()
	for name, value := range settings(d, opts, lists) {
		cfg.ConnConfig.RuntimeParams[name] = value
	}
	cfg.MaxConns = or(opts.MaxConns, 8)
	if lists {
		cfg.MaxConns = or(opts.ReadConns, 4)
	}
	cfg.MaxConnLifetimeJitter = 5 * time.Minute
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		registerArrays(conn.TypeMap())
		return nil
	}
	p, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("make pool: %w", classify(err))
	}
	return p, nil
}

// anyOf is how joins compare the first column of an index: x = ANY (ARRAY[y]) for x = y. To PostgreSQL this is a look-up by key but no order in which two
// inputs could be merged, and it considers a walk along a whole index, as it would for a table that statistics call empty, only for the sake of an order.
var anyOf = regexp.MustCompile(`= ANY \(ARRAY\[([a-z_.]+)\]\)`)

// plain is a statement as CockroachDB plans it well.
func plain(text string) string { return anyOf.ReplaceAllString(text, "= $1") }

// rewrite makes statements what the database plans well.
func (d dialect) rewrite(list []statement) []statement {
	if d != cockroach {
		return list
	}
	own := slices.Clone(list)
	for i := range own {
		own[i].text = plain(own[i].text)
	}
	return own
}

func or(n, otherwise int32) int32 {
	if n > 0 {
		return n
	}
	return otherwise
}

// registerArrays makes a connection take *array for arrays of the types that columns have.
func registerArrays(m *pgtype.Map) {
	for _, oid := range []uint32{pgtype.Int4ArrayOID, pgtype.Int8ArrayOID, pgtype.BoolArrayOID, pgtype.TextArrayOID, pgtype.ByteaArrayOID, pgtype.UUIDArrayOID} {
		t, ok := m.TypeForOID(oid)
		if !ok {
			continue
		}
		m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: arrayCodec{t.Codec}})
	}
}
