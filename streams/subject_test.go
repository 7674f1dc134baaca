package streams

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/waterclock-io/waterclock/job"
)

var tokens = rapid.StringMatching(`[A-Za-z0-9_-]{1,64}`)

func anyLane(t *rapid.T) Lane {
	return Lane{Namespace: tokens.Draw(t, "namespace"), Queue: tokens.Draw(t, "queue"), Priority: rapid.SampledFrom(job.Priorities[:]).Draw(t, "priority")}
}

func anyID(t *rapid.T, name string) uuid.UUID {
	return uuid.UUID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, name))
}

func TestRunSubjectThereAndBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lane, run, dispatch := anyLane(t), anyID(t, "run"), rapid.Int64Min(1).Draw(t, "dispatch")
		subject := RunSubject(lane, run, dispatch)
		l, r, d, err := ParseRunSubject(subject)
		if err != nil || l != lane || r != run || d != dispatch {
			t.Fatalf("%s came back as %v %v %d, %v", subject, l, r, d, err)
		}
		if !strings.HasPrefix(subject, strings.TrimSuffix(lane.filter(), ">")) {
			t.Fatalf("%s is not of the filter %s", subject, lane.filter())
		}
		if p, ok := lanePriority(subject); !ok || p != lane.Priority {
			t.Fatalf("%s has priority %v, %v", subject, p, ok)
		}
	})
}

func TestLanesHaveConsumersOfTheirOwn(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := anyLane(t), anyLane(t)
		if (a == b) != (a.consumerPrefix() == b.consumerPrefix()) || (a == b) != (a.filter() == b.filter()) {
			t.Fatalf("%v and %v have consumers %s and %s", a, b, a.consumerPrefix(), b.consumerPrefix())
		}
	})
}

func TestMalformedSubjects(t *testing.T) {
	t.Parallel()
	id := uuid.NewString()
	for _, s := range []string{
		"", ".", "run", "run.a.b.normal." + id, "run.a.b.normal." + id + ".1.2", "walk.a.b.normal." + id + ".1", "run.a.b.urgent." + id + ".1",
		"run.a.b.normal.nobody.1", "run.a.b.normal." + id + ".0", "run.a.b.normal." + id + ".-1", "run.a.b.normal." + id + ".one",
		"run.a.b.normal." + id + ".9223372036854775808", "run.a.b.Normal." + id + ".1",
	} {
		if _, _, _, err := ParseRunSubject(s); !errors.Is(err, ErrSubject) {
			t.Errorf("%q: got %v", s, err)
		} else if !strings.Contains(err.Error(), "allowed: run.<namespace>") {
			t.Errorf("%q: the error does not say what is allowed: %v", s, err)
		}
	}
}

func TestMalformedSubjectsNeverPanic(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.OneOf(rapid.String(), rapid.StringMatching(`run(\.[a-z0-9.*>-]{0,9}){0,7}`)).Draw(t, "subject")
		_, _, _, err := ParseRunSubject(s)
		if _, ok := lanePriority(s); err == nil && !ok {
			t.Fatalf("%q parses, and has no priority", s)
		}
		_ = NamespaceOf(s)
	})
}
