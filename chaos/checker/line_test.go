package checker

import "testing"

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
