package report

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The part of a page between these lines is made from a report; the rest is written by people and stays as it is.
const (
	pageBegin = "<!-- measured: what stands between these two lines is made by bench/cmd/bench -page -->"
	pageEnd   = "<!-- /measured -->"
)

// newPage is the page where there is none yet.
const newPage = "# Performance\n\n" + pageBegin + "\n" + pageEnd + "\n"

// Page returns a page with its measured part made anew, and the pictures that it shows from the folder given. A page without that part, if not empty, is
// an error.
func (r *Report) Page(page []byte, pictures string) ([]byte, error) {
	if len(page) == 0 {
		page = []byte(newPage)
	}
	before, rest, ok := bytes.Cut(page, []byte(pageBegin+"\n"))
	_, after, closed := bytes.Cut(rest, []byte(pageEnd))
	if !ok || !closed {
		return nil, fmt.Errorf("the page has no part between the lines %q and %q", pageBegin, pageEnd)
	}
	var b bytes.Buffer
	b.Write(before)
	b.WriteString(pageBegin + "\n\n")
	if err := r.WriteMarkdown(&b); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Charts())) {
		fmt.Fprintf(&b, "\n![%s](%s/%s)\n", strings.TrimSuffix(name, ".svg"), pictures, name)
	}
	b.WriteString("\n" + pageEnd)
	b.Write(after)
	return b.Bytes(), nil
}
