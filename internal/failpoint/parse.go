package failpoint

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Action is what an armed point does.
type Action string

// The actions. A point at which a process can die knows Kill alone, StoreRetry Error, StoreCommit Lost.
const (
	Kill  Action = "kill"
	Error Action = "error"
	Lost  Action = "lost"
)

// Arm is one armed point.
type Arm struct {
	Name   string
	Action Action
	// At is the pass that strikes, from 1; zero where each strikes with Probability.
	At          int64
	Probability float64
}

// Struck is how what a process writes to its standard error stream begins when a point strikes for the first time.
func Struck(name string) string { return "failpoint " + name + ": " }

// Parse reads the text of Variable; empty text arms nothing.
func Parse(text string) ([]Arm, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var arms []Arm
	for part := range strings.SplitSeq(text, ";") {
		a, err := parseOne(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("%s: %q given: %w", Variable, part, err)
		}
		if slices.ContainsFunc(arms, func(o Arm) bool { return o.Name == a.Name }) {
			return nil, fmt.Errorf("%s: %s is armed twice; allowed: once", Variable, a.Name)
		}
		arms = append(arms, a)
	}
	return arms, nil
}

func parseOne(part string) (Arm, error) {
	name, what, ok := strings.Cut(part, "=")
	if !ok {
		return Arm{}, fmt.Errorf("allowed: name=action@pass or name=action:probability")
	}
	known, err := actionOf(name)
	if err != nil {
		return Arm{}, err
	}
	at := strings.IndexAny(what, "@:")
	if at < 0 {
		return Arm{}, fmt.Errorf("no turn given; allowed: %s@pass or %s:probability", known, known)
	}
	a := Arm{Name: name, Action: Action(what[:at])}
	if a.Action != known {
		return Arm{}, fmt.Errorf("unknown action %q; allowed at %s: %s", a.Action, name, known)
	}
	turn := what[at+1:]
	if what[at] == '@' {
		if a.At, err = strconv.ParseInt(turn, 10, 64); err != nil || a.At < 1 {
			return Arm{}, fmt.Errorf("pass %q; allowed: a whole number from 1", turn)
		}
		return a, nil
	}
	// The comparison is written so that NaN does not pass it.
	if a.Probability, err = strconv.ParseFloat(turn, 64); err != nil || !(a.Probability > 0 && a.Probability <= 1) {
		return Arm{}, fmt.Errorf("probability %q; allowed: above 0, at most 1", turn)
	}
	return a, nil
}

func actionOf(name string) (Action, error) {
	switch name {
	case StoreRetry:
		return Error, nil
	case StoreCommit:
		return Lost, nil
	}
	if slices.ContainsFunc(All, func(p Point) bool { return p.Name == name }) {
		return Kill, nil
	}
	names := make([]string, 0, len(All)+len(Errors))
	for _, p := range slices.Concat(All, Errors) {
		names = append(names, p.Name)
	}
	return "", fmt.Errorf("unknown point %q; allowed: %s", name, strings.Join(names, ", "))
}
