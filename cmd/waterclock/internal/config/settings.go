package config

import (
	"net"
	"net/url"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// setting is one key of the configuration: what a user must know of it, and what a value must hold beyond being of the field's type.
type setting struct {
	key     string
	help    string // meaning, unit, special values
	allowed string // completes "allowed: …" in an error
	check   func(value any) bool
}

// settings lists every key, in the order of the documentation. A test holds it to the fields of Config.
var settings = []setting{
	{"http.listen", "Address of the API and the metrics. Port 0 takes a free port. Beyond loopback the server wants an API key to exist.",
		"host:port", is(hostPort)},
	{"http.tls_cert", "PEM file of the TLS certificate with its chain. Empty: plain HTTP.", "a path, together with http.tls_key", nil},
	{"http.tls_key", "PEM file of the TLS private key.", "a path, together with http.tls_cert", nil},

	{"nats.url", "The NATS server with JetStream (2.12 or later): embedded starts one inside this process; else its addresses, separated by commas.",
		"embedded, or nats://, tls://, ws:// or wss:// addresses separated by commas", is(natsURL)},
	{"nats.listen", "Address of the embedded NATS server, for executors in other processes. Port 0 takes a free port.", "host:port", is(hostPort)},
	{"nats.credentials", "File with the credentials (.creds) for NATS. Empty: none.", "a path", nil},
	{"nats.replicas", "Copies of each stream in a NATS cluster.", "1, 3 or 5", is(func(n int) bool { return n == 1 || n == 3 || n == 5 })},
	{"nats.max_bytes", "Size of the streams of runs and of submits on disk at most; that of reports may be twice as large. A full stream makes " +
		"the planner wait; it loses nothing.",
		"a size from 16MiB, such as 1GiB", is(func(n Size) bool { return n >= 16<<20 })},

	{"store.url", "The SQL database that holds the truth. Empty: sqlite with waterclock.db in data.dir.",
		"sqlite:PATH, postgres://… or cockroach://…", is(storeURL)},
	{"store.max_conns", "Connections to the database for the work of this process at most. Lists and history have a few more.", "a whole number from 2 to 1000", between(2, 1000)},
	{"store.isolation", "Isolation of transactions. Empty: what suits the database (PostgreSQL read committed, CockroachDB serializable).",
		"read committed or serializable, or nothing", oneOf("", "read committed", "serializable")},

	{"data.dir", "Folder of the embedded database, the embedded NATS server and the blobs. It is made where it is missing.",
		"a path", is(func(s string) bool { return s != "" })},
	{"blob.url", "Where logs and large results are stored. Empty: blobs in data.dir.",
		"file:///… or mem://", is(blobURL)},

	{"planner.horizon", "How far ahead of their due time runs are read into memory.", "a duration from 1s to 1m",
		within(time.Second, time.Minute)},
	{"planner.mark_ahead", "How far ahead of its due time a run is marked as handed out; it is never published before that time.",
		"a duration from 1ms to 250ms", within(time.Millisecond, 250*time.Millisecond)},
	{"planner.lane_limit", "Runs that may wait in NATS per namespace, queue and priority. Others wait in SQL, where an urgent one overtakes.",
		"a whole number from 1 to 1000000", between(1, 1_000_000)},

	{"executor.slots", "Runs that this process works on at the same time.", "a whole number from 1 to 10000", between(1, 10_000)},
	{"executor.queues", "Queues that this process serves. default is shared by all namespaces; namespace/queue belongs to a namespace (_/queue to all); " +
		"a bare name belongs to the namespace default.", "one or more names of 1 to 64 letters, digits, _ and -, alone or as namespace/queue", is(queueNames)},
	{"executor.kinds.exec.enabled", "Whether this process runs commands (kind exec).", "true or false", nil},
	{"executor.kinds.exec.allow", "Programs that commands may start. Nothing else is started.", "absolute paths", is(absolutePaths)},
	{"executor.kinds.http.allow_private", "Whether HTTP calls (kind http) may go to private, loopback and link-local addresses.",
		"true or false", nil},
	{"executor.labels", "Labels of this executor, shown wherever executors are listed.",
		"keys and values of letters, digits and . _ - / with at most 64 characters", is(labels)},
	{"executor.drain_grace", "How long running work may go on when the process is told to stop; then it is handed back.",
		"a duration from 1ms to 1d", within(time.Millisecond, day)},

	{"lease.ack_wait", "The lease: a run without a heartbeat for this long goes to another executor. Short: quick recovery. " +
		"Long: work outlives an outage of NATS of that length.", "a duration from 2s to 10m", within(2*time.Second, 10*time.Minute)},
	{"lease.heartbeat", "Time between two heartbeats of a run.", "a duration from 100ms; with lease.margin less than three quarters of lease.ack_wait",
		within(100*time.Millisecond, 10*time.Minute)},
	{"lease.margin", "How long before the end of its lease an executor kills the work, should it have lost NATS.",
		"a duration from 100ms; with lease.heartbeat less than three quarters of lease.ack_wait", within(100*time.Millisecond, 10*time.Minute)},

	{"recorder.batch", "Reports that the recorder writes in one transaction at most.", "a whole number from 1 to 1000", between(1, 1000)},
	{"recorder.linger", "How long a batch that is not full waits for more reports. Longer costs latency of results and saves work.",
		"a duration from 1ms to 1s", within(time.Millisecond, time.Second)},

	{"retention.history", "How long runs that have ended are kept. 0s: for ever.", "0s, or a duration from 1h to 36500d",
		is(func(d time.Duration) bool { return d == 0 || d >= time.Hour && d <= 36500*day })},

	{"log.level", "Least severe messages that are logged.", "debug, info, warn or error", oneOf("debug", "info", "warn", "error")},
	{"log.format", "Form of the log on standard error.", "text or json", oneOf("text", "json")},

	{"startup.timeout", "How long the start waits for NATS and the database to answer.", "a duration from 1s to 1h",
		within(time.Second, time.Hour)},
}

// byKey finds a setting, fieldIndex the field of Config that it fills; sections holds the keys that have keys below them.
var (
	byKey      = indexSettings()
	fieldIndex = indexFields(reflect.TypeFor[Config](), "", nil, map[string][]int{})
	sections   = indexSections()
)

func indexSettings() map[string]*setting {
	m := make(map[string]*setting, len(settings))
	for i := range settings {
		m[settings[i].key] = &settings[i]
	}
	return m
}

func indexFields(t reflect.Type, prefix string, path []int, into map[string][]int) map[string][]int {
	for i := range t.NumField() {
		f := t.Field(i)
		key, at := prefix+f.Tag.Get("koanf"), append(slices.Clone(path), i)
		if f.Type.Kind() == reflect.Struct {
			indexFields(f.Type, key+".", at, into)
			continue
		}
		into[key] = at
	}
	return into
}

func indexSections() map[string]bool {
	m := map[string]bool{"": true}
	for _, s := range settings {
		for key := s.key; ; {
			i := strings.LastIndexByte(key, '.')
			if i < 0 {
				break
			}
			key = key[:i]
			m[key] = true
		}
	}
	return m
}

// field returns the field of c that a key fills.
func (c *Config) field(key string) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(fieldIndex[key])
}

func is[T any](ok func(T) bool) func(any) bool {
	return func(v any) bool { t, isT := v.(T); return isT && ok(t) }
}

func between(low, high int) func(any) bool {
	return is(func(n int) bool { return n >= low && n <= high })
}

func within(low, high time.Duration) func(any) bool {
	return is(func(d time.Duration) bool { return d >= low && d <= high })
}

func oneOf(names ...string) func(any) bool {
	return is(func(s string) bool { return slices.Contains(names, s) })
}

func hostPort(s string) bool {
	_, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

func natsURL(s URL) bool {
	if s == Embedded {
		return true
	}
	for one := range strings.SplitSeq(string(s), ",") {
		u, err := url.Parse(one)
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return false
		}
	}
	return true
}

func storeURL(s URL) bool {
	if path, isFile := strings.CutPrefix(string(s), "sqlite:"); isFile {
		return path != ""
	}
	u, err := url.Parse(string(s))
	return s == "" || err == nil && u.Host != "" && (u.Scheme == "postgres" || u.Scheme == "cockroach")
}

func blobURL(s URL) bool {
	u, err := url.Parse(string(s))
	return s == "" || err == nil && (u.Scheme == "file" || u.Scheme == "mem") && strings.Contains(string(s), "://")
}

var (
	queueName  = regexp.MustCompile(`^([A-Za-z0-9_-]{1,64}/)?[A-Za-z0-9_-]{1,64}$`)
	labelKey   = regexp.MustCompile(`^[A-Za-z0-9._/-]{1,64}$`)
	labelValue = regexp.MustCompile(`^[A-Za-z0-9._/-]{0,64}$`)
)

func queueNames(names []string) bool {
	return len(names) > 0 && !slices.ContainsFunc(names, func(n string) bool { return !queueName.MatchString(n) })
}

func absolutePaths(paths []string) bool {
	return !slices.ContainsFunc(paths, func(p string) bool { return !filepath.IsAbs(p) })
}

func labels(m map[string]string) bool {
	for k, v := range m {
		if !labelKey.MatchString(k) || !labelValue.MatchString(v) {
			return false
		}
	}
	return true
}
