// Package config reads the configuration of the server commands: a YAML file, then environment variables, then flags, each over the one
// before, and every one of them strict. A key that does not exist, a value of the wrong kind and a value out of range are errors that name
// where it stands, what was given and what is allowed.
//
// It only reads: it opens no port, makes no folder and knows no role. cmd/waterclock calls it and hands the values on. The client commands do
// not use it; they have flags of their own.
package config

import "time"

// Config is the whole configuration. What each field means, its unit, its default and its special values stand in the table of settings
// (settings.go), from which docs/configuration.md, deploy/waterclock.yaml and the help of the flags are made; Default holds the defaults.
type Config struct {
	HTTP      HTTP      `koanf:"http"`
	NATS      NATS      `koanf:"nats"`
	Store     Store     `koanf:"store"`
	Data      Data      `koanf:"data"`
	Blob      Blob      `koanf:"blob"`
	Planner   Planner   `koanf:"planner"`
	Executor  Executor  `koanf:"executor"`
	Lease     Lease     `koanf:"lease"`
	Recorder  Recorder  `koanf:"recorder"`
	Retention Retention `koanf:"retention"`
	Log       Log       `koanf:"log"`
	Startup   Startup   `koanf:"startup"`
}

// HTTP is where the API listens.
type HTTP struct {
	Listen  string `koanf:"listen"`   // host:port; port 0 takes a free one
	TLSCert string `koanf:"tls_cert"` // path of a PEM file; empty: no TLS
	TLSKey  string `koanf:"tls_key"`  // path of a PEM file; given exactly when TLSCert is
}

// NATS is the message server.
type NATS struct {
	URL         URL    `koanf:"url"`         // Embedded, or addresses separated by commas
	Listen      string `koanf:"listen"`      // host:port of the embedded server
	Credentials string `koanf:"credentials"` // path of a .creds file; empty: none
	Replicas    int    `koanf:"replicas"`    // of each stream: 1, 3 or 5
	MaxBytes    Size   `koanf:"max_bytes"`   // of the streams of runs and submits; reports may take twice as much
}

// Embedded is the value of nats.url that starts a NATS server inside the process.
const Embedded = "embedded"

// Store is the SQL database.
type Store struct {
	URL       URL    `koanf:"url"`       // sqlite:PATH, postgres://… or cockroach://…; Load fills it in where it is empty
	MaxConns  int    `koanf:"max_conns"` // connections for the work of this process at most
	Isolation string `koanf:"isolation"` // read committed or serializable; empty: what suits the database
}

// Data is the folder of what this process keeps on disk.
type Data struct {
	Dir string `koanf:"dir"`
}

// Blob is where logs and large results lie.
type Blob struct {
	URL URL `koanf:"url"` // of gocloud.dev/blob; Load fills it in where it is empty
}

// Planner bounds what a planner reads and hands out ahead.
type Planner struct {
	Horizon   time.Duration `koanf:"horizon"`    // how far ahead of their due time rows are read
	MarkAhead time.Duration `koanf:"mark_ahead"` // how far ahead of their due time rows are marked; at most 250 ms
	LaneLimit int           `koanf:"lane_limit"` // messages waiting per (namespace, queue, priority)
}

// Executor is what this process runs.
type Executor struct {
	Slots      int               `koanf:"slots"`  // runs at a time
	Queues     []string          `koanf:"queues"` // that are served
	Kinds      Kinds             `koanf:"kinds"`
	Labels     map[string]string `koanf:"labels"`
	DrainGrace time.Duration     `koanf:"drain_grace"` // that running work gets when the process is stopped
}

// Kinds holds the settings of the built-in handlers.
type Kinds struct {
	Exec Exec     `koanf:"exec"`
	HTTP HTTPKind `koanf:"http"`
}

// Exec is the built-in handler that runs commands.
type Exec struct {
	Enabled bool     `koanf:"enabled"`
	Allow   []string `koanf:"allow"` // absolute paths of programs
}

// HTTPKind is the built-in handler that makes HTTP calls.
type HTTPKind struct {
	AllowPrivate bool `koanf:"allow_private"` // calls to private, loopback and link-local addresses
}

// Lease says how an executor holds a run.
type Lease struct {
	AckWait   time.Duration `koanf:"ack_wait"`  // without a heartbeat for this long the run goes to another executor
	Heartbeat time.Duration `koanf:"heartbeat"` // between two heartbeats
	Margin    time.Duration `koanf:"margin"`    // that an executor kills its work before the lease is over
}

// Recorder bounds the transactions of the recorder.
type Recorder struct {
	Batch  int           `koanf:"batch"`  // reports per transaction at most
	Linger time.Duration `koanf:"linger"` // that a batch that is not full waits for more
}

// Retention says how long what has ended is kept.
type Retention struct {
	History time.Duration `koanf:"history"` // 0: for ever
}

// Log is what the process says on standard error.
type Log struct {
	Level  string `koanf:"level"`  // debug, info, warn or error
	Format string `koanf:"format"` // text or json
}

// Startup bounds the start.
type Startup struct {
	Timeout time.Duration `koanf:"timeout"` // that NATS and SQL are waited for
}

// Default returns the configuration of a process that is given none. Load fills in store.url and blob.url, which follow data.dir.
func Default() Config {
	return Config{
		HTTP:      HTTP{Listen: "127.0.0.1:7420"},
		NATS:      NATS{URL: Embedded, Listen: "127.0.0.1:7422", Replicas: 1, MaxBytes: 1 << 30},
		Store:     Store{MaxConns: 8},
		Data:      Data{Dir: "./.waterclock"},
		Planner:   Planner{Horizon: 2500 * time.Millisecond, MarkAhead: 250 * time.Millisecond, LaneLimit: 8192},
		Executor:  Executor{Slots: 16, Queues: []string{"default"}, DrainGrace: 30 * time.Second},
		Lease:     Lease{AckWait: 10 * time.Second, Heartbeat: 3 * time.Second, Margin: 2 * time.Second},
		Recorder:  Recorder{Batch: 500, Linger: 20 * time.Millisecond},
		Retention: Retention{History: 90 * day},
		Log:       Log{Level: "info", Format: "text"},
		Startup:   Startup{Timeout: time.Minute},
	}
}
