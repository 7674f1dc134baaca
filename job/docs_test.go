package job_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/job"
)

// With -update the table in the documentation is written anew: go test ./job -update
var update = flag.Bool("update", false, "write the state machine into docs/architecture.md")

const (
	architecture     = "../docs/architecture.md"
	transitionsBegin = "<!-- transitions:begin -->\n"
	transitionsEnd   = "<!-- transitions:end -->\n"
)

// The state machine that is documented is the one that is kept.
func TestDocumentationHasTheTransitions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(architecture)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(text), transitionsBegin)
	got, after, ended := strings.Cut(rest, transitionsEnd)
	if !begun || !ended || strings.Contains(after, transitionsBegin) {
		t.Fatalf("%s must have one section between the lines %q and %q", architecture, strings.TrimSpace(transitionsBegin), strings.TrimSpace(transitionsEnd))
	}
	want := transitionsTable()
	if *update {
		if err := os.WriteFile(architecture, []byte(before+transitionsBegin+want+transitionsEnd+after), 0o644); err != nil { //nolint:gosec // a document
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s is not what job.Transitions give (-transitions +file); run go test ./job -update\n%s", architecture, diff)
	}
}

func transitionsTable() string {
	var b strings.Builder
	b.WriteString("| step | user sees | event | next step | note |\n|---|---|---|---|---|\n")
	last := job.Step(-1)
	for _, t := range job.Transitions {
		step, seen := "", ""
		if t.From != last {
			step, seen = "**"+t.From.String()+"**", shownAs(t.From)
		}
		last = t.From
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", step, seen, t.Event, t.To, t.Note)
	}
	return b.String()
}

// shownAs names the states that users see of a step: that of a first attempt, and that of a later one where it differs.
func shownAs(s job.Step) string {
	if s == job.StepNone {
		return ""
	}
	first, later := job.StateOf(s, 1), job.StateOf(s, 2)
	if first == later {
		return string(first)
	}
	return string(first) + ", " + string(later)
}
