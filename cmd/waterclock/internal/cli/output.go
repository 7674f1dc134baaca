package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/charmbracelet/lipgloss"
	"github.com/muesli/termenv"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// printJSON writes the response of a call as one document.
func (a *app) printJSON(m proto.Message) error {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil { // protojson varies its spaces on purpose
		return fmt.Errorf("write JSON: %w", err)
	}
	b.WriteByte('\n')
	_, err = a.Stdout.Write(b.Bytes())
	return err
}

// printJSONLine writes one message of a stream as one line.
func (a *app) printJSONLine(m proto.Message) error {
	raw, err := protojson.Marshal(m)
	if err != nil {
		return fmt.Errorf("write JSON: %w", err)
	}
	_, err = io.WriteString(a.Stdout, compact(raw)+"\n")
	return err
}

// compact takes the spaces out of JSON.
func compact(raw []byte) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw) // is no JSON; not for this function to say
	}
	return b.String()
}

// paint writes text in colours, where they go to a terminal that has them and NO_COLOR is not set.
type paint struct{ renderer *lipgloss.Renderer }

func (a *app) paint(w io.Writer) paint {
	r := lipgloss.NewRenderer(w)
	r.SetColorProfile(termenv.Ascii)
	if a.IsTerminal(w) && a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb" {
		r.SetColorProfile(termenv.ANSI)
	}
	return paint{r}
}

func (p paint) bold(s string) string { return p.renderer.NewStyle().Bold(true).Render(s) }

// state colours the state of a run or of a job.
func (p paint) state(s string) string {
	colour := map[string]string{
		"succeeded": "2", "completed": "2", "active": "2", "failed": "1", "deleted": "1", "cancelled": "3", "cancelling": "3", "retrying": "3",
		"paused": "3", "skipped": "3", "running": "6", "queued": "6",
	}[s]
	if colour == "" {
		return s
	}
	return p.renderer.NewStyle().Foreground(lipgloss.Color(colour)).Render(s)
}

// table writes rows below headings, each column as wide as its widest cell. Cells must be clean.
func (a *app) table(headings []string, rows [][]string) error {
	p := a.paint(a.Stdout)
	widths := make([]int, len(headings))
	for _, row := range append([][]string{headings}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], lipgloss.Width(cell))
		}
	}
	bold := make([]string, len(headings))
	for i, h := range headings {
		bold[i] = p.bold(h)
	}
	return writeRows(a.Stdout, widths, append([][]string{bold}, rows...))
}

// details writes labelled values, leaving out those that are empty. Values must be clean.
func (a *app) details(values [][2]string) error {
	p := a.paint(a.Stdout)
	var rows [][]string
	width := 0
	for _, v := range values {
		if v[1] == "" {
			continue
		}
		width = max(width, lipgloss.Width(v[0]))
		rows = append(rows, []string{p.bold(v[0]), v[1]})
	}
	return writeRows(a.Stdout, []int{width, 0}, rows)
}

func writeRows(w io.Writer, widths []int, rows [][]string) error {
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-lipgloss.Width(cell)+2))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// note writes a line for people to standard error.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.Stderr, format+"\n", args...)
}

// word is the name of an enum value without the prefix that proto wants: RUN_STATE_FAILED is failed; unspecified is empty.
func word(prefix, name string) string {
	w := strings.ToLower(strings.TrimPrefix(name, prefix))
	if w == "unspecified" {
		return ""
	}
	return w
}

func runState(s waterclockv1.RunState) string { return word("RUN_STATE_", s.String()) }
func jobState(s waterclockv1.JobState) string { return word("JOB_STATE_", s.String()) }

func priorityName(p waterclockv1.Priority) string {
	if p == waterclockv1.Priority_PRIORITY_UNSPECIFIED {
		return "normal"
	}
	return word("PRIORITY_", p.String())
}
