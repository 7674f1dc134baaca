package cli

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"
)

// clean escapes what is not printable, so that a name or a message cannot steer the terminal, break a line or turn the direction of the text.
func clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		size := writeEscaped(&b, s, "")
		s = s[size:]
	}
	return b.String()
}

// writeEscaped writes the first rune of s, escaped unless it is printable or one of keep, and returns how many bytes of s it took.
func writeEscaped(b *strings.Builder, s, keep string) int {
	r, size := utf8.DecodeRuneInString(s)
	switch {
	case r == utf8.RuneError && size <= 1:
		fmt.Fprintf(b, `\x%02x`, s[0])
	case unicode.IsPrint(r) || strings.ContainsRune(keep, r):
		b.WriteRune(r)
	case r == '\n':
		b.WriteString(`\n`)
	case r == '\t':
		b.WriteString(`\t`)
	case r == '\r':
		b.WriteString(`\r`)
	case r < 0x80:
		fmt.Fprintf(b, `\x%02x`, r)
	case r <= 0xffff:
		fmt.Fprintf(b, `\u%04x`, r)
	default:
		fmt.Fprintf(b, `\U%08x`, r)
	}
	return size
}

// escaper passes a stream of output on with everything escaped that could steer a terminal. Newlines, tabs, and returns before a newline stay.
type escaper struct {
	w    io.Writer
	held string // the beginning of a rune or a return, until it is known what follows
}

func (e *escaper) Write(p []byte) (int, error) {
	s := e.held + string(p)
	e.held = ""
	var b strings.Builder
	for len(s) > 0 {
		if s == "\r" || !utf8.FullRuneInString(s) {
			e.held = s
			break
		}
		if strings.HasPrefix(s, "\r\n") {
			b.WriteString("\r\n")
			s = s[2:]
			continue
		}
		s = s[writeEscaped(&b, s, "\n\t"):]
	}
	if _, err := io.WriteString(e.w, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// flush writes what was held back at the end of the stream.
func (e *escaper) flush() error {
	held := e.held
	e.held = ""
	var b strings.Builder
	for len(held) > 0 {
		held = held[writeEscaped(&b, held, ""):]
	}
	_, err := io.WriteString(e.w, b.String())
	return err
}

// moment shows a time as it stands on the wall and as it is seen from now.
func (a *app) moment(ts *timestamppb.Timestamp) string {
	if ts == nil {
		return ""
	}
	now := a.Now()
	t := ts.AsTime().In(now.Location())
	return t.Format(time.RFC3339) + " (" + relative(t.Sub(now)) + ")"
}

func relative(d time.Duration) string {
	switch {
	case d > -time.Second && d < time.Second:
		return "now"
	case d < 0:
		return short(-d) + " ago"
	default:
		return "in " + short(d)
	}
}

// short writes a duration with its two largest units.
func short(d time.Duration) string {
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	units := []struct {
		name string
		size time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"m", time.Minute}, {"s", time.Second}}
	for i, u := range units {
		if d < u.size {
			continue
		}
		text := fmt.Sprintf("%d%s", d/u.size, u.name)
		if i+1 < len(units) {
			if next := d % u.size / units[i+1].size; next > 0 {
				text += fmt.Sprintf("%d%s", next, units[i+1].name)
			}
		}
		return text
	}
	return "0s"
}
