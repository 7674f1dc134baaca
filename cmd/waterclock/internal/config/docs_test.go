package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
)

// With -update the two files that are made from the table of settings are written anew: go test ./cmd/waterclock/internal/config -update
var update = flag.Bool("update", false, "write docs/configuration.md and deploy/waterclock.yaml")

const (
	samplePath = "../../../../deploy/waterclock.yaml"
	docsPath   = "../../../../docs/configuration.md"
)

// The two golden tests are not parallel, so that with -update they have written before the others read.

func TestSampleIsMadeFromTheSettings(t *testing.T) {
	golden(t, samplePath, sample())
}

func TestDocumentationIsMadeFromTheSettings(t *testing.T) {
	golden(t, docsPath, documentation())
}

func golden(t *testing.T, path, want string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s is not what the settings give (-settings +file); run go test ./cmd/waterclock/internal/config -update\n%s", path, diff)
	}
}

// Both as it is shipped and with every line switched on, the sample must say what the defaults say.
func TestSampleHoldsTheDefaults(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(samplePath)
	if err != nil {
		t.Fatal(err)
	}
	want, err := load(t, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	switchedOn := regexp.MustCompile(`(?m)^( *)#([a-z_]+:)`).ReplaceAllString(string(text), "$1$2")
	if switchedOn == string(text) {
		t.Fatal("the sample has no line to switch on")
	}
	for name, yaml := range map[string]string{"as shipped": string(text), "switched on": switchedOn} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "waterclock.yaml")
			if err := os.WriteFile(path, []byte(yaml), 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := load(t, []string{"--config", path}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.String(), got.String()); diff != "" {
				t.Errorf("-defaults +sample\n%s", diff)
			}
		})
	}
}

func TestEveryFieldIsASettingAndDocumented(t *testing.T) {
	t.Parallel()
	docs, err := os.ReadFile(docsPath)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(samplePath)
	if err != nil {
		t.Fatal(err)
	}
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddFlags(flags)
	for key := range fieldIndex {
		if byKey[key] == nil {
			t.Errorf("the field of %s has no setting", key)
			continue
		}
		if !strings.Contains(string(docs), "| `"+key+"` |") {
			t.Errorf("%s is not in %s", key, docsPath)
		}
		if !strings.Contains(string(text), "#"+key[strings.LastIndexByte(key, '.')+1:]+":") {
			t.Errorf("%s is not in %s", key, samplePath)
		}
		if flags.Lookup(key) == nil {
			t.Errorf("%s has no flag", key)
		}
	}
	if len(settings) != len(fieldIndex) {
		t.Errorf("%d settings, %d fields", len(settings), len(fieldIndex))
	}
	variables := map[string]string{}
	for _, s := range settings {
		if other, taken := variables[Variable(s.key)]; taken {
			t.Errorf("%s and %s share the variable %s", s.key, other, Variable(s.key))
		}
		variables[Variable(s.key)] = s.key
	}
}

func sample() string {
	var b strings.Builder
	b.WriteString(`# The configuration of Waterclock. Every key stands here with its default, switched off: take away the # before a key to change it.
# An environment variable goes before this file, a flag before both: WATERCLOCK_HTTP_LISTEN, --http.listen.
# Start with it: waterclock server --config waterclock.yaml. Durations: 250ms, 10s, 5m, 1h, 90d. Sizes: 64MiB, 1GiB.
`)
	defaults := Default()
	open := []string{}
	for _, s := range settings {
		path := strings.Split(s.key, ".")
		for depth := range path[:len(path)-1] {
			if depth < len(open) && open[depth] == path[depth] {
				continue
			}
			if depth == 0 {
				b.WriteByte('\n')
			}
			open = append(open[:depth:depth], path[depth])
			fmt.Fprintf(&b, "%s%s:\n", strings.Repeat("  ", depth), path[depth])
		}
		open = open[:len(path)-1]
		indent := strings.Repeat("  ", len(path)-1)
		for _, line := range wrap(s.help+" Allowed: "+s.allowed+".", 110-len(indent)) {
			fmt.Fprintf(&b, "%s# %s\n", indent, line)
		}
		fmt.Fprintf(&b, "%s#%s: %s\n", indent, path[len(path)-1], yamlValue(defaults.field(s.key).Interface()))
	}
	return b.String()
}

func yamlValue(v any) string {
	switch v := v.(type) {
	case []string:
		return "[" + strings.Join(v, ", ") + "]"
	case map[string]string:
		return "{}"
	default:
		if text := format(v); text != "" {
			return text
		}
		return `""`
	}
}

func documentation() string {
	var b strings.Builder
	b.WriteString(`# Configuration

The server commands read a YAML file (` + "`--config FILE` or `WATERCLOCK_CONFIG`" + `), then environment variables, then flags; what is read later wins.
[deploy/waterclock.yaml](../deploy/waterclock.yaml) is a sample with every key. A key that does not exist, a value of the wrong kind and a value
out of range stop the start, with the file and line, what was given and what is allowed.

- The flag of a key is its name: ` + "`--http.listen 127.0.0.1:8080`" + `. Its variable is the name in capitals: ` + "`WATERCLOCK_HTTP_LISTEN`" + `.
- Durations have a unit: ` + "`250ms`, `10s`, `5m`, `1h30m`, `90d`" + `. Sizes: ` + "`64MiB`, `1GiB`" + `, or a number of bytes.
- In variables and flags, lists are separated by commas, and labels are ` + "`key=value`" + ` pairs separated by commas. Such a flag can be repeated.
- An address with a password is refused as a flag, where every user of the machine could read it; it is masked wherever it is shown.

| key | default | meaning | allowed |
|---|---|---|---|
`)
	defaults := Default()
	for _, s := range settings {
		shown := format(defaults.field(s.key).Interface())
		if shown != "" {
			shown = "`" + shown + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.key, shown, s.help, s.allowed)
	}
	b.WriteString("\nThis page is made from the table in `cmd/waterclock/internal/config/settings.go`: " +
		"`go test ./cmd/waterclock/internal/config -update`.\n")
	return b.String()
}

func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+1+len(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return append(lines, line)
}
