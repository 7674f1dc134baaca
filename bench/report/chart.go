package report

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
)

// chart is a picture of bars that lie, in groups, with a line from the lowest to the highest value of each.
type chart struct {
	title string
	// log makes the scale logarithmic; values below a tenth are drawn as one.
	log    bool
	digits int
	groups []group
}

type group struct {
	title string
	bars  []bar
}

type bar struct {
	contender, title string
	Spread
}

// Sizes in pixels.
const (
	chartWidth, labelWidth, valueWidth = 900, 270, 110
	barHeight, groupGap, titleHeight   = 20, 30, 34
	logFloor                           = .1
)

// colours by the beginning of a contender's name, the longest that fits.
var colours = []struct{ prefix, colour string }{
	{"waterclock-postgres-rpc", "#6aa5d8"}, {"waterclock-sqlite-rpc", "#7cc4a4"}, {"waterclock-postgres", "#1f6fb2"}, {"waterclock-sqlite", "#2a9d6f"},
	{"river", "#c2703d"}, {"asynq", "#b04a5a"}, {"floor", "#8a8a8a"},
}

// svg draws the chart.
func (c *chart) svg() string {
	height, most := titleHeight, 0.0
	for _, g := range c.groups {
		height += groupGap + barHeight*len(g.bars)
		for i := range g.bars {
			most = max(most, g.bars[i].Max)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12" fill="#222">`+"\n",
		chartWidth, height+10, chartWidth, height+10)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/><text x="10" y="22" font-size="15" font-weight="bold">%s</text>`+"\n", html.EscapeString(c.title))
	y := titleHeight
	for _, g := range c.groups {
		fmt.Fprintf(&b, `<text x="10" y="%d" font-weight="bold">%s</text>`+"\n", y+groupGap-10, html.EscapeString(g.title))
		y += groupGap
		for i := range g.bars {
			one := &g.bars[i]
			end, low, high := c.place(one.Median, most), c.place(one.Min, most), c.place(one.Max, most)
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, labelWidth-8, y+14, html.EscapeString(one.title))
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`, labelWidth, y+3, end, barHeight-6, colourOf(one.contender))
			if low != high {
				fmt.Fprintf(&b, `<path d="M%.1f %dH%.1f" stroke="#222" stroke-width="1.5"/>`, labelWidth+low, y+barHeight/2, labelWidth+high)
			}
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", labelWidth+max(end, high)+6, y+14, number(one.Median, c.digits))
			y += barHeight
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// place is how far from the left a value lies.
func (c *chart) place(v, most float64) float64 {
	const width = chartWidth - labelWidth - valueWidth
	if most <= 0 || v <= 0 {
		return 0
	}
	if c.log {
		if most <= logFloor {
			return 0
		}
		return width * math.Log(max(v, logFloor)/logFloor) / math.Log(most/logFloor)
	}
	return width * v / most
}

func colourOf(contender string) string {
	for _, c := range colours {
		if strings.HasPrefix(contender, c.prefix) {
			return c.colour
		}
	}
	return "#555"
}

// Charts draws the pictures of which something was measured, by file name.
func (r *Report) Charts() map[string][]byte {
	rates := []string{"W1", "W1b", "W2", "W5"}
	out := map[string][]byte{}
	for name, c := range map[string]*chart{
		"throughput.svg": {title: "Jobs per second (longer is better)", groups: r.groups("rate", rates...)},
		"cpu.svg":        {title: "CPU seconds of all processes per 1,000 jobs (shorter is better)", digits: 3, groups: r.groups("cpu", append(rates, "F")...)},
		"lag.svg":        {title: "Start lag of jobs spread over time, in ms, logarithmic (shorter is better)", log: true, digits: 1, groups: r.lagGroups()},
	} {
		c.groups = slices.DeleteFunc(c.groups, func(g group) bool { return len(g.bars) == 0 })
		if len(c.groups) > 0 {
			out[name] = []byte(c.svg())
		}
	}
	return out
}

func (r *Report) groups(value string, workloads ...string) []group {
	var out []group
	for _, name := range workloads {
		for i := range r.Workloads {
			if w := &r.Workloads[i]; w.Name == name {
				out = append(out, group{w.Name + ": " + w.Title, r.bars(name, value)})
			}
		}
	}
	return out
}

func (r *Report) lagGroups() []group {
	var out []group
	for _, value := range []string{"p50", "p95", "p99", "max"} {
		out = append(out, group{"W3 " + value, r.bars("W3", value)})
	}
	return out
}

func (r *Report) bars(workload, value string) []bar {
	var out []bar
	for i := range r.Contenders {
		c := &r.Contenders[i]
		if s, ok := r.Of(workload, c.Name, value); ok {
			out = append(out, bar{c.Name, c.Title, s})
		}
	}
	return out
}
