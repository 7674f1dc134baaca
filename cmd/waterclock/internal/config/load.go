package config

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"

	"github.com/waterclock-io/waterclock/executor"
)

const envPrefix = "WATERCLOCK_"

// Variable returns the environment variable of a key: WATERCLOCK_HTTP_LISTEN for http.listen.
func Variable(key string) string {
	return envPrefix + strings.ToUpper(strings.ReplaceAll(key, ".", "_"))
}

// AddFlags gives a flag set --config and one flag for each key, with the key as its name (--http.listen).
func AddFlags(flags *pflag.FlagSet) {
	flags.String("config", "", "YAML file with the configuration (environment: WATERCLOCK_CONFIG)")
	defaults := Default()
	for _, s := range settings {
		v := &flagValue{shown: format(defaults.field(s.key).Interface()), kind: defaults.field(s.key).Type()}
		f := flags.VarPF(v, s.key, "", s.help+" Allowed: "+s.allowed+".")
		if v.kind.Kind() == reflect.Bool {
			f.NoOptDefVal = "true"
		}
	}
}

// flagValue keeps the text of a flag; Load turns it into a value, so that a bad flag gets the same error as a bad line in the file.
type flagValue struct {
	kind  reflect.Type
	shown string
	given []string
}

func (v *flagValue) String() string {
	if len(v.given) == 0 {
		return v.shown
	}
	return strings.Join(v.given, ",")
}

// Set appends to lists and labels, so that such a flag can be repeated, and replaces everything else.
func (v *flagValue) Set(text string) error {
	if v.kind.Kind() == reflect.Slice || v.kind.Kind() == reflect.Map {
		v.given = append(v.given, text)
		return nil
	}
	v.given = []string{text}
	return nil
}

func (v *flagValue) Type() string {
	switch v.kind.Kind() {
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "key=value"
	case reflect.Bool:
		return "bool"
	case reflect.Int:
		return "int"
	case reflect.String:
		return "string"
	default:
		return strings.ToLower(v.kind.Name())
	}
}

// loader gathers the layers and, rather than stop at the first, everything that is wrong with them.
type loader struct {
	merged   *koanf.Koanf
	origin   map[string]string
	problems []error
}

// Load reads the configuration: defaults, then the file named by --config or WATERCLOCK_CONFIG, then environ (as os.Environ gives it), then
// flags, which AddFlags has prepared. The error joins one *Error for each thing that is wrong, or says why the file could not be read.
func Load(flags *pflag.FlagSet, environ []string) (Config, error) {
	l := &loader{merged: koanf.New("."), origin: map[string]string{}}
	defaults := Default()
	for _, s := range settings {
		if err := l.merged.Load(confmap.Provider(map[string]any{s.key: defaults.field(s.key).Interface()}, "."), nil); err != nil {
			return Config{}, fmt.Errorf("configuration: default of %s: %w", s.key, err)
		}
	}
	if err := errors.Join(l.file(configPath(flags, environ)), l.environ(environ), l.flags(flags)); err != nil {
		return Config{}, err
	}
	if len(l.problems) > 0 {
		return Config{}, errors.Join(l.problems...)
	}
	var cfg Config
	if err := l.merged.Unmarshal("", &cfg); err != nil {
		return Config{}, fmt.Errorf("configuration: %w", err)
	}
	l.together(&cfg)
	if len(l.problems) > 0 {
		return Config{}, errors.Join(l.problems...)
	}
	return cfg, cfg.derive()
}

func configPath(flags *pflag.FlagSet, environ []string) (path, origin string) {
	if f := flags.Lookup("config"); f != nil && f.Changed {
		return f.Value.String(), "--config"
	}
	for _, pair := range environ {
		if path, found := strings.CutPrefix(pair, envPrefix+"CONFIG="); found {
			return path, envPrefix + "CONFIG"
		}
	}
	return "", ""
}

// refuse notes that a key has a value that it must not have.
func (l *loader) refuse(origin, key, given, allowed string) {
	l.problems = append(l.problems, &Error{Origin: origin, Key: key, Given: given, Allowed: allowed})
}

// value turns text into the value of a key, or notes what is wrong with it.
func (l *loader) value(key, origin, text string) (any, bool) {
	v, ok := parse(fieldType(key), text)
	if !ok {
		l.refuse(origin, key, quote(key, text), byKey[key].allowed)
		return nil, false
	}
	return v, l.check(key, origin, v, quote(key, text))
}

// check holds a value to its setting and notes where it came from.
func (l *loader) check(key, origin string, value any, given string) bool {
	s := byKey[key]
	if s.check != nil && !s.check(value) {
		l.refuse(origin, key, given, s.allowed)
		return false
	}
	l.origin[key] = origin
	return true
}

func fieldType(key string) reflect.Type {
	return reflect.TypeFor[Config]().FieldByIndex(fieldIndex[key]).Type
}

// quote shows what was given; of an address, what is no secret.
func quote(key, text string) string {
	if fieldType(key) == reflect.TypeFor[URL]() {
		text = mask(text)
	}
	return fmt.Sprintf("%q", text)
}

// serviceVariable matches what Kubernetes puts into the environment of each pod for a service whose name begins with "waterclock".
var serviceVariable = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

func (l *loader) environ(environ []string) error {
	keyOf := make(map[string]string, len(settings))
	names := make([]string, 0, len(settings))
	for _, s := range settings {
		keyOf[Variable(s.key)] = s.key
		names = append(names, Variable(s.key))
	}
	provider := env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, text string) (string, any) {
			key, known := keyOf[name]
			if !known {
				l.unknownVariable(name, names)
				return "", nil
			}
			v, ok := l.value(key, "environment "+name, text)
			if !ok {
				return "", nil
			}
			return key, v
		},
	})
	if err := l.merged.Load(provider, nil); err != nil {
		return fmt.Errorf("configuration from the environment: %w", err)
	}
	return nil
}

// unknownVariable refuses a variable that can only be meant for a key: one of a section, or a misspelt one. Others may belong to the client
// commands, to tests or to Kubernetes.
func (l *loader) unknownVariable(name string, names []string) {
	section, _, _ := strings.Cut(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_")
	near := nearest(name, names)
	if serviceVariable.MatchString(name) || !sections[section] && len(near) == 0 {
		return
	}
	l.problems = append(l.problems, &Error{Origin: "environment", Key: name, Near: near})
}

func (l *loader) flags(flags *pflag.FlagSet) error {
	provider := posflag.ProviderWithFlag(flags, ".", l.merged, func(f *pflag.Flag) (string, any) {
		if byKey[f.Name] == nil || !f.Changed {
			return "", nil
		}
		v, ok := l.value(f.Name, "--"+f.Name, f.Value.String())
		if !ok {
			return "", nil
		}
		if u, isURL := v.(URL); isURL && u.hasSecret() {
			l.refuse("--"+f.Name, f.Name, quote(f.Name, string(u)),
				"no password in a flag, where every user of this machine can read it; use the file or "+Variable(f.Name))
			return "", nil
		}
		return f.Name, v
	})
	if err := l.merged.Load(provider, nil); err != nil {
		return fmt.Errorf("configuration from the flags: %w", err)
	}
	return nil
}

// together checks what several keys must hold between them.
func (l *loader) together(c *Config) {
	if (c.HTTP.TLSCert == "") != (c.HTTP.TLSKey == "") {
		l.refuse(l.origin["http.tls_cert"]+l.origin["http.tls_key"], "http.tls_cert and http.tls_key", "only one of them", "both or neither")
	}
	if most := (executor.Lease{AckWait: c.Lease.AckWait}).Most(); c.Lease.Heartbeat+c.Lease.Margin >= most {
		l.refuse("", "lease.heartbeat + lease.margin", formatDuration(c.Lease.Heartbeat+c.Lease.Margin),
			"less than "+formatDuration(most)+" with lease.ack_wait "+formatDuration(c.Lease.AckWait))
	}
	if c.Executor.Kinds.Exec.Enabled && len(c.Executor.Kinds.Exec.Allow) == 0 {
		l.refuse("", "executor.kinds.exec.allow", "nothing", "at least one absolute path where executor.kinds.exec.enabled is true")
	}
}

// derive fills in what follows data.dir.
func (c *Config) derive() error {
	dir, err := filepath.Abs(c.Data.Dir)
	if err != nil {
		return fmt.Errorf("data.dir: given %q: %w", c.Data.Dir, err)
	}
	if c.Store.URL == "" {
		c.Store.URL = URL("sqlite:" + filepath.Join(dir, "waterclock.db"))
	}
	if c.Blob.URL == "" {
		c.Blob.URL = URL("file://" + filepath.ToSlash(filepath.Join(dir, "blobs")) + "?create_dir=true")
	}
	return nil
}
