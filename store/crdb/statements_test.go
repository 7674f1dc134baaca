package crdb

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/waterclock-io/waterclock/internal/pgtest"
)

// With -update the page on statements is written anew: go test ./store/crdb -run TestStatements -update
var update = flag.Bool("update", false, "write docs/statements.md")

const statementsPage = "../../docs/statements.md"

// Every statement that the package sends is counted, over the lives of jobs as the roles ask for them, and the page is held against that. It is the same at
// both levels of isolation.
func TestStatements(t *testing.T) {
	t.Parallel()
	cluster := pgtest.Start(t, pgtest.Options{Settings: map[string]string{
		// What comes by itself would be counted where it comes: clean-up, and whole pages in the log after a checkpoint.
		"autovacuum": "off", "full_page_writes": "off", "checkpoint_timeout": "1h", "max_wal_size": "4GB",
	}})
	results, texts := measureScenarios(t, cluster.NewDatabase(t), ReadCommitted)
	again, _ := measureScenarios(t, cluster.NewDatabase(t), Serializable)
	if diff := cmp.Diff(results, again, cmp.AllowUnexported(measured{}, counts{})); diff != "" {
		t.Errorf("the levels of isolation differ (-read committed +serializable):\n%s", diff)
	}
	empty := cluster.NewDatabase(t)
	p := &page{results: results, plans: plansOf(t, empty, texts), version: majorVersion(t, empty)}
	want := p.text()
	fenced := false
	for i, line := range strings.Split(want, "\n") {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if n := len([]rune(line)); n > 160 && !fenced {
			t.Errorf("line %d of the page has %d characters: %s", i+1, n, line)
		}
	}
	if *update {
		if err := os.WriteFile(statementsPage, []byte(want), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(statementsPage)
	if err != nil {
		t.Fatal(err)
	}
	got := string(text)
	if !strings.Contains(got, p.serverLine()) {
		// Another version writes plans otherwise, and cleans pages otherwise. What is sent does not depend on it.
		t.Logf("NOT COMPARED: plans and keys touched; this is PostgreSQL %d, and %s is of another", p.version, statementsPage)
		want, got = beforeKeys(want), beforeKeys(got)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is not what the store does (-measured +file); run go test ./store/crdb -run TestStatements -update\n%s", statementsPage, diff)
	}
}

func beforeKeys(text string) string {
	before, _, _ := strings.Cut(text, keysHeading)
	return before
}

func majorVersion(t *testing.T, dsn string) (v int) {
	t.Helper()
	if err := rawConn(t, dsn).QueryRow(t.Context(), "SELECT current_setting('server_version_num')::int / 10000").Scan(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// plansOf are the generic plans of texts under the settings of the pools, without costs.
func plansOf(t *testing.T, dsn string, texts map[string]string) map[string]string {
	t.Helper()
	if _, _, err := Migrate(t.Context(), dsn); err != nil {
		t.Fatal(err)
	}
	conn := rawConn(t, dsn)
	for name, value := range settings(postgres, Options{}, false) {
		run(t, conn, fmt.Sprintf("SET %s = '%s'", name, value))
	}
	plans := map[string]string{}
	for name, text := range texts {
		if !explainable(text) {
			continue
		}
		plan := ""
		if strings.Contains(text, "$1") {
			plan = explain(t, conn, text)
		} else {
			plan = explainAsIs(t, conn, text)
		}
		plans[name] = costs.ReplaceAllString(plan, "")
	}
	return plans
}

// explainAsIs returns the plan of a statement without parameters, which has no other.
func explainAsIs(t *testing.T, conn *pgx.Conn, text string) string {
	t.Helper()
	rows, err := conn.Query(t.Context(), "EXPLAIN "+text, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatalf("explain %s: %v", text, err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("explain %s: %v", text, err)
	}
	return strings.Join(lines, "\n")
}

// truncateAll empties the tables that grow, so that one scenario does not meet the remains of another.
func truncateAll(t *testing.T, conn *pgx.Conn) {
	t.Helper()
	run(t, conn, "TRUNCATE jobs, payloads, timers, runs, skips, members, streams, api_keys")
}
