package report

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// measured is the part of a page that is made from a report.
var measured = Part{"<!-- measured: what stands between these two lines is made by bench/cmd/bench -page -->", "<!-- /measured -->"}

// newPage is the page where there is none yet.
var newPage = "# Performance\n\n" + measured.Begin + "\n" + measured.End + "\n"

// Page returns a page with its measured part made anew, and the pictures that it shows from the folder given. A page without that part, if not empty, is
// an error.
func (r *Report) Page(page []byte, pictures string) ([]byte, error) {
	if len(page) == 0 {
		page = []byte(newPage)
	}
	var b bytes.Buffer
	if err := r.WriteMarkdown(&b); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(r.Charts())) {
		fmt.Fprintf(&b, "\n![%s](%s/%s)\n", strings.TrimSuffix(name, ".svg"), pictures, name)
	}
	return measured.Put(page, b.Bytes())
}
