package config

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

const day = 24 * time.Hour

// Size is a number of bytes, written as 512KiB, 64MiB, 1GiB or as a plain number.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// String writes the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

func parseSize(text string) (Size, bool) {
	factor := int64(1)
	for _, u := range sizeUnits {
		if number, found := strings.CutSuffix(text, u.name); found {
			text, factor = strings.TrimSpace(number), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/factor {
		return 0, false
	}
	return Size(n * factor), true
}

// parseDuration reads what time.ParseDuration reads, with whole days ("90d", "1d12h") before it. It refuses negative ones.
func parseDuration(text string) (time.Duration, bool) {
	days, rest, found := strings.Cut(text, "d")
	if !found {
		days, rest = "0", text
	}
	n, err := strconv.ParseUint(days, 10, 32)
	if err != nil || n > uint64(math.MaxInt64/day) {
		return 0, false
	}
	d := time.Duration(n) * day
	if rest == "" {
		return d, found
	}
	more, err := time.ParseDuration(rest)
	if err != nil || more < 0 || d > math.MaxInt64-more {
		return 0, false
	}
	return d + more, true
}

func formatDuration(d time.Duration) string {
	if d > 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	text := d.String()
	if short, found := strings.CutSuffix(text, "m0s"); found {
		text = short + "m"
	}
	if short, found := strings.CutSuffix(text, "h0m"); found {
		text = short + "h"
	}
	return text
}

// URL is an address that may hold a password. It shows itself masked wherever it is printed, logged or encoded; string(u) is the address.
type URL string

const masked = "xxxxx"

// String returns the address with passwords and tokens masked.
func (u URL) String() string { return mask(string(u)) }

// GoString masks as String does.
func (u URL) GoString() string { return strconv.Quote(u.String()) }

// LogValue masks as String does.
func (u URL) LogValue() slog.Value { return slog.StringValue(u.String()) }

// MarshalText masks as String does.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }

func secretWord(s string) bool {
	s = strings.ToLower(s)
	return strings.Contains(s, "password") || strings.Contains(s, "secret") || strings.Contains(s, "token")
}

// mask hides all of an address that it cannot take apart and that might hold a secret.
func mask(address string) string {
	if !strings.Contains(address, "@") && !secretWord(address) {
		return address
	}
	if strings.HasPrefix(address, "sqlite:") {
		return address
	}
	parts := strings.Split(address, ",")
	for i, part := range parts {
		u, err := url.Parse(part)
		if err != nil || u.Scheme == "" || u.Host == "" {
			return masked
		}
		if u.User != nil {
			// Without a password the user of a database is a name, that of NATS a token.
			if _, both := u.User.Password(); both {
				u.User = url.UserPassword(u.User.Username(), masked)
			} else if u.Scheme != "postgres" && u.Scheme != "cockroach" {
				u.User = url.User(masked)
			}
		}
		query := u.Query()
		for name := range query {
			if secretWord(name) {
				query.Set(name, masked)
			}
		}
		u.RawQuery = query.Encode()
		parts[i] = u.String()
	}
	return strings.Join(parts, ",")
}

// hasSecret tells whether an address holds what others must not see.
func (u URL) hasSecret() bool { return u.String() != string(u) && strings.Contains(u.String(), masked) }

// parse turns the text of an environment variable, of a flag or of a scalar in the file into a value of a field's type. Lists are separated by
// commas, labels are key=value pairs separated by commas.
func parse(t reflect.Type, text string) (any, bool) {
	switch t {
	case reflect.TypeFor[string]():
		return text, true
	case reflect.TypeFor[URL]():
		return URL(text), true
	case reflect.TypeFor[bool]():
		return text == "true", text == "true" || text == "false"
	case reflect.TypeFor[int]():
		n, err := strconv.Atoi(text)
		return n, err == nil
	case reflect.TypeFor[Size]():
		return parseSize(text)
	case reflect.TypeFor[time.Duration]():
		return parseDuration(text)
	case reflect.TypeFor[[]string]():
		if text == "" {
			return []string(nil), true
		}
		items := strings.Split(text, ",")
		for i := range items {
			items[i] = strings.TrimSpace(items[i])
		}
		return items, true
	default:
		return parseLabels(text)
	}
}

func parseLabels(text string) (map[string]string, bool) {
	m := map[string]string{}
	if text == "" {
		return m, true
	}
	for pair := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(strings.TrimSpace(pair), "=")
		if _, twice := m[key]; !found || twice {
			return nil, false
		}
		m[key] = value
	}
	return m, true
}

// format writes a value as parse reads it, with secrets masked.
func format(value any) string {
	switch v := value.(type) {
	case time.Duration:
		return formatDuration(v)
	case []string:
		return strings.Join(v, ",")
	case map[string]string:
		pairs := make([]string, 0, len(v))
		for _, key := range slices.Sorted(maps.Keys(v)) {
			pairs = append(pairs, key+"="+v[key])
		}
		return strings.Join(pairs, ",")
	default:
		return fmt.Sprint(v)
	}
}

// String lists every key with its value, one per line, with secrets masked.
func (c Config) String() string {
	var b strings.Builder
	for _, s := range settings {
		fmt.Fprintf(&b, "%s=%s\n", s.key, format(c.field(s.key).Interface()))
	}
	return b.String()
}

// LogValue is the configuration as attributes, with secrets masked.
func (c Config) LogValue() slog.Value {
	attrs := make([]slog.Attr, 0, len(settings))
	for _, s := range settings {
		attrs = append(attrs, slog.String(s.key, format(c.field(s.key).Interface())))
	}
	return slog.GroupValue(attrs...)
}
