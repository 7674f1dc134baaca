package crdb

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// foreign are words of SQL that PostgreSQL has and CockroachDB has not, or takes for something else.
var foreign = []*regexp.Regexp{
	regexp.MustCompile(`(?i)\b(SERIAL|BIGSERIAL|SMALLSERIAL|NEXTVAL|SETVAL|CREATE\s+SEQUENCE)\b`),
	regexp.MustCompile(`(?i)\bPG_(TRY_)?ADVISORY`),
	regexp.MustCompile(`(?i)\b(LISTEN|NOTIFY|UNLISTEN|PG_NOTIFY)\b`),
	regexp.MustCompile(`(?i)\bLOCK\s+TABLE\b`),
	regexp.MustCompile(`(?i)AS\s+OF\s+SYSTEM\s+TIME\s+\$`),
	regexp.MustCompile(`(?i)\b(PLPGSQL|DO\s+\$|CREATE\s+(OR\s+REPLACE\s+)?(FUNCTION|PROCEDURE|TRIGGER|RULE))`),
	regexp.MustCompile(`(?i)\b(CTID|XMIN|XMAX|TABLEOID)\b`),
	regexp.MustCompile(`(?i)\b(MERGE\s+INTO|ON\s+CONFLICT\s+ON\s+CONSTRAINT|TABLESAMPLE|DECLARE\s+\w+\s+CURSOR|CREATE\s+UNLOGGED|CLUSTER\s+\w+\s+USING|VACUUM)\b`),
	regexp.MustCompile(`(?i)\b(USING\s+(BRIN|GIST|SPGIST)|FILLFACTOR|AUTOVACUUM\w*|TABLESPACE)\b`),
	regexp.MustCompile(`(?i)\b(ROWS\s+FROM|WITH\s+ORDINALITY)\b`),
}

var isSQL = regexp.MustCompile(`\b(SELECT|INSERT|UPDATE|DELETE|CREATE|ALTER|WITH|FROM|WHERE|JOIN)\b`)

func TestStatementsKnowNoWordThatCockroachLacks(t *testing.T) {
	t.Parallel()
	texts := sqlOfSources(t)
	for _, name := range []string{"00001_init.sql", "00002_storage.sql"} {
		b, err := migrationFiles.ReadFile("migrations/cockroach/" + name)
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = comments.ReplaceAllString(string(b), "")
	}
	for _, p := range planned {
		texts[p.name] = plain(p.text)
		if anyOf.MatchString(texts[p.name]) {
			t.Errorf("%s: joins as for PostgreSQL: %s", p.name, texts[p.name])
		}
	}
	if len(texts) < 100 {
		t.Fatalf("only %d texts were found", len(texts))
	}
	for where, text := range texts {
		for _, word := range foreign {
			if found := word.FindString(text); found != "" {
				t.Errorf("%s: %q in %s", where, found, text)
			}
		}
	}
}

// sqlOfSources are the string literals of the package that are SQL, by where they stand.
func sqlOfSources(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	files, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	set := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			if text, err := strconv.Unquote(lit.Value); err == nil && isSQL.MatchString(text) {
				texts[set.Position(lit.Pos()).String()] = text
			}
			return true
		})
	}
	return texts
}

var (
	comments = regexp.MustCompile(`(?m)^--.*\n`)
	differs  = regexp.MustCompile(` IF NOT EXISTS| IF EXISTS| DESC| USING HASH`)
	listKey  = regexp.MustCompile(`(?m)^CREATE INDEX jobs_list .*$`)
	spaces   = regexp.MustCompile(`\n+`)
)

// The two dialects have the same tables.
func TestDialectsHaveTheSameTables(t *testing.T) {
	t.Parallel()
	read := func(dialect string) string {
		b, err := migrationFiles.ReadFile("migrations/" + dialect + "/00001_init.sql")
		if err != nil {
			t.Fatal(err)
		}
		text := differs.ReplaceAllString(comments.ReplaceAllString(string(b), ""), "")
		return spaces.ReplaceAllString(listKey.ReplaceAllString(text, ""), "\n")
	}
	if d := cmp.Diff(read("postgres"), read("cockroach")); d != "" {
		t.Errorf("postgres and cockroach differ:\n%s", d)
	}
}
