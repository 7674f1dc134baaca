package failpoint_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/internal/failpoint"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]failpoint.Arm{
		"":                         nil,
		"  ":                       nil,
		"planner.marked=kill@2":    {{Name: "planner.marked", Action: failpoint.Kill, At: 2}},
		"planner.marked=kill:0.01": {{Name: "planner.marked", Action: failpoint.Kill, Probability: 0.01}},
		"executor.acked=kill:1; store.retry=error:0.2;store.commit=lost@3": {
			{Name: "executor.acked", Action: failpoint.Kill, Probability: 1},
			{Name: "store.retry", Action: failpoint.Error, Probability: 0.2},
			{Name: "store.commit", Action: failpoint.Lost, At: 3},
		},
	} {
		got, err := failpoint.Parse(text)
		if err != nil {
			t.Errorf("Parse(%q): %v", text, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("Parse(%q):\n%s", text, d)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"planner.markt=kill@1":                        `unknown point "planner.markt"; allowed: submit.prepared, `,
		"planner.marked":                              "allowed: name=action@pass or name=action:probability",
		"planner.marked=kill":                         "allowed: kill@pass or kill:probability",
		"planner.marked=lost@1":                       `unknown action "lost"; allowed at planner.marked: kill`,
		"store.retry=kill@1":                          `unknown action "kill"; allowed at store.retry: error`,
		"planner.marked=kill@0":                       `pass "0"; allowed: a whole number from 1`,
		"planner.marked=kill@-1":                      `pass "-1"; allowed`,
		"planner.marked=kill@x":                       `pass "x"; allowed`,
		"planner.marked=kill:0":                       `probability "0"; allowed: above 0, at most 1`,
		"planner.marked=kill:1.1":                     `probability "1.1"; allowed`,
		"planner.marked=kill:NaN":                     `probability "NaN"; allowed`,
		"planner.marked=kill@1;":                      "allowed: name=action@pass",
		"planner.marked=kill@1,executor.acked=kill@1": `pass "1,executor.acked=kill@1"; allowed`,
		"planner.marked=kill@1;planner.marked=kill@2": "planner.marked is armed twice",
	} {
		_, err := failpoint.Parse(text)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), failpoint.Variable) {
			t.Errorf("Parse(%q): %v; want %q in it", text, err, want)
		}
	}
}
