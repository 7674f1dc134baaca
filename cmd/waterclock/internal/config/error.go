package config

import (
	"fmt"
	"slices"
	"strings"
)

// Error is one thing that is wrong with the configuration.
type Error struct {
	Origin  string   // where it stands: file:line, a variable, a flag
	Key     string   // such as http.listen
	Given   string   // what was given, masked; empty where there is no such key
	Allowed string   // what may be given
	Near    []string // keys of similar names, where there is no such key
}

// BadInput tells that what the user gave is at fault, which is what the exit code is chosen by.
func (e *Error) BadInput() bool { return true }

func (e *Error) Error() string {
	var b strings.Builder
	if e.Origin != "" {
		b.WriteString(e.Origin + ": ")
	}
	if e.Given == "" {
		fmt.Fprintf(&b, "%s: there is no such key", e.Key)
		if len(e.Near) > 0 {
			b.WriteString("; did you mean " + strings.Join(e.Near, " or ") + "?")
		}
		return b.String()
	}
	fmt.Fprintf(&b, "%s: given %s, allowed: %s", e.Key, e.Given, e.Allowed)
	return b.String()
}

func knownKeys() []string {
	keys := make([]string, 0, len(settings)+len(sections))
	for _, s := range settings {
		keys = append(keys, s.key)
	}
	for s := range sections {
		if s != "" {
			keys = append(keys, s)
		}
	}
	return keys
}

// nearest returns up to three of the names that a misspelt one may stand for: those within a third of its length in edits, and those that end
// alike, for a key that was put into the wrong section.
func nearest(name string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	if len(name) > 100 {
		return nil // no name of ours, and distances cost its length
	}
	last := name[strings.LastIndexByte(name, '.')+1:]
	var near []candidate
	for _, n := range names {
		d := distance(name, n)
		if strings.Contains(name, ".") && strings.HasSuffix(n, "."+last) {
			d = min(d, 1)
		}
		if d <= min(3, len(name)/3) {
			near = append(near, candidate{n, d})
		}
	}
	slices.SortFunc(near, func(a, b candidate) int {
		if a.distance != b.distance {
			return a.distance - b.distance
		}
		return strings.Compare(a.name, b.name)
	})
	out := make([]string, 0, 3)
	for _, c := range near[:min(3, len(near))] {
		out = append(out, c.name)
	}
	return out
}

// distance is the Levenshtein distance of two names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
