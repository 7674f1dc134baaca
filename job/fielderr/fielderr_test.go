package fielderr_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/waterclock-io/waterclock/job/fielderr"
)

func TestFieldErrorText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name string
		err  fielderr.FieldError
		want string
	}{
		{
			"reason",
			fielderr.FieldError{Field: "schedule.cron.zone", Given: "Mars/Olympus", Reason: "is not known", Allowed: "an IANA time zone name such as Europe/Berlin"},
			`schedule.cron.zone: "Mars/Olympus" is not known; allowed: an IANA time zone name such as Europe/Berlin`,
		},
		{"no reason", fielderr.FieldError{Field: "a.b", Given: "", Allowed: "x"}, `a.b: "" is not allowed; allowed: x`},
		{"control characters", fielderr.FieldError{Field: "a", Given: "x\n\x1b[2J", Allowed: "x"}, `a: "x\n\x1b[2J" is not allowed; allowed: x`},
		{
			"long",
			fielderr.FieldError{Field: "a", Given: strings.Repeat("z", 5000), Allowed: "x"},
			`a: "` + strings.Repeat("z", 80) + `"… (5000 bytes) is not allowed; allowed: x`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if got := c.err.Error(); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestFieldErrors(t *testing.T) {
	t.Parallel()
	if err := (fielderr.FieldErrors{}).Err(); err != nil {
		t.Fatalf("an empty list must be nil, got %v", err)
	}
	a := &fielderr.FieldError{Field: "a", Given: "1", Allowed: "2"}
	b := &fielderr.FieldError{Field: "b", Given: "3", Allowed: "4"}
	err := fmt.Errorf("job: %w", fielderr.FieldErrors{a, b}.Err())
	if want := `job: a: "1" is not allowed; allowed: 2; and b: "3" is not allowed; allowed: 4`; err.Error() != want {
		t.Errorf("got %s, want %s", err, want)
	}
	var first *fielderr.FieldError
	if !errors.As(err, &first) || first != a {
		t.Errorf("errors.As found %v, want the first", first)
	}
	if !errors.Is(err, b) {
		t.Error("errors.Is does not see the second")
	}
}
