package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRender(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	page, bench := filepath.Join(dir, "scale.md"), filepath.Join(dir, "bench.json")
	for path, text := range map[string]string{
		page:  "# Scale\n<!-- modelled: what stands between these two lines is made by bench/cmd/scale -page -->\n<!-- /modelled -->\nAfter.\n",
		bench: `{"measures": [{"workload": "W1", "contender": "waterclock-postgres-rpc", "values": {"cpu": 0.5, "database_cpu": 0.1}}, {"workload": "W2", "contender": "waterclock-postgres", "values": {"cpu": 0.2, "database_cpu": 0.1}}]}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-from", bench, "-page", page}, &out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"0.400 CPU s per 1,000 submits", "### Assumptions", "After.\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	if err := run(t.Context(), nil, &out); err != nil || !strings.Contains(out.String(), "not measured") {
		t.Errorf("without a report: %v\n%s", err, out.String())
	}
	for _, bad := range [][]string{{"-from", filepath.Join(dir, "none")}, {"-page", bench}, {"-page", filepath.Join(dir, "none")}, {"-x"}} {
		if err := run(t.Context(), bad, &out); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}
