package report

import (
	"bytes"
	"fmt"
	"os"
)

// Part is a stretch of a page of the documentation that a command makes, between two lines; what stands around it is written by people and stays as it is.
type Part struct{ Begin, End string }

// Put returns the page with the part made anew. A page without its two lines is an error.
func (p Part) Put(page, body []byte) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(p.Begin+"\n"))
	_, after, closed := bytes.Cut(rest, []byte(p.End))
	if !ok || !closed {
		return nil, fmt.Errorf("the page has no part between the lines %q and %q", p.Begin, p.End)
	}
	return bytes.Join([][]byte{before, []byte(p.Begin + "\n\n"), bytes.TrimSpace(body), []byte("\n\n" + p.End), after}, nil), nil
}

// Update makes the part of the page in a file anew.
func (p Part) Update(path string, body []byte) error {
	page, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if page, err = p.Put(page, body); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, page, 0o644) //nolint:gosec // documentation
}
