package scale

import (
	"bytes"
	"fmt"
)

// Part is a stretch of a page of the documentation that a command makes; what stands around it is written by people and stays as it is.
type Part struct{ begin, end string }

// The parts of docs/scale.md.
var (
	ModelPart = Part{
		"<!-- modelled: what stands between these two lines is made by bench/cmd/scale -page -->", "<!-- /modelled -->",
	}
	SimulationPart = Part{
		"<!-- simulated: what stands between these two lines is made by bench/cmd/simulate -page -->", "<!-- /simulated -->",
	}
)

// Put returns the page with the part made anew. A page without its two lines is an error.
func (p Part) Put(page, body []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(p.begin+"\n"))
	_, after, closed := bytes.Cut(rest, []byte(p.end))
	if !ok || !closed {
		return nil, fmt.Errorf("the page has no part between the lines %q and %q", p.begin, p.end)
	}
	return bytes.Join([][]byte{before, []byte(p.begin + "\n\n"), bytes.TrimSpace(body), []byte("\n\n" + p.end), after}, nil), nil
}
