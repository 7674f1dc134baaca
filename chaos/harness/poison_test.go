package harness

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock-io/waterclock/chaos/checker"
	"github.com/waterclock-io/waterclock/chaos/fault"
)

func TestPoisonIsFoundAndStraysAreTold(t *testing.T) {
	t.Parallel()
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	p := &poisoner{done: []poured{
		{checker.Poison{What: "a", Want: "dead.status"}, "MARKA", at(1)}, {checker.Poison{What: "b", Want: "dead.status"}, "MARKB", at(5)},
	}}
	letters := []dead{{"dead.status", "why", "xMARKBx"}, {"dead.run", "odd", "good"}, {"dead.status", "known", fault.Garbage}}
	found, strays := p.ended(letters, []checker.Window{{From: at(1), Till: at(2)}})
	if diff := cmp.Diff([]checker.Poison{{What: "b", Want: "dead.status", Ended: []string{"dead.status"}, Reason: "why"}}, found); diff != "" {
		t.Error(diff)
	}
	if len(strays) != 1 || strays[0].subject != "dead.run" {
		t.Errorf("%+v", strays)
	}
	if found, _ = p.ended(nil, nil); len(found) != 2 {
		t.Errorf("what is nowhere is not told: %+v", found)
	}
}
