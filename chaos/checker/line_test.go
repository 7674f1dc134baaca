package checker

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTornLineIsPassedOver(t *testing.T) {
	t.Parallel()
	whole := "start 72240e32-00a6-5a97-bcc2-37fb9239072f 1 1 14908 1795262655230113 190\n"
	lines, err := ParseLines(whole + "end 6177cc25-4459-54cb-ab9e-2a717959101e 1 1 14815 1795262652076012" + whole)
	if err != nil || len(lines) != 2 || lines[1] != lines[0] {
		t.Errorf("got %v, %v; want the whole line twice", lines, err)
	}
	if _, err := ParseLines("end 6177cc25-4459-54cb-ab9e-2a717959101e 1 1\n"); err == nil {
		t.Error("a short line that nothing was appended to is taken")
	}
}

func TestLinesAreReadAsWritten(t *testing.T) {
	t.Parallel()
	want := []Line{
		{Kind: Start, RunID: "a", Attempt: 1, Dispatch: 2, Group: 3, At: at(1.5), Number: 4},
		{Kind: Alive, RunID: "a", Attempt: 1, Dispatch: 2, Group: 3, At: at(1.6), Number: 4},
		{Kind: End, RunID: "a", Attempt: 1, Dispatch: 2, Group: 3, At: at(1.7), Number: 4},
	}
	text := ""
	for _, l := range want {
		text += l.String() + "\n"
	}
	got, err := ParseLines(text)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, bad := range []string{"start a 1 2 3 4\n", "begin a 1 2 3 4 5\n", "end a x 2 3 4 5\n", "\n"} {
		if _, err := ParseLines(bad); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}
