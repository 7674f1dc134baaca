// Command simulate plays planners over shards on a virtual clock and prints what it shows as Markdown, or puts it into docs/scale.md. What statements cost is
// taken from the facts of package scale, unless flags say otherwise.
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/waterclock-io/waterclock/bench/scale"
	"github.com/waterclock-io/waterclock/bench/simulate"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	f, err := scale.Measured()
	if err != nil {
		return err
	}
	c := costs(f)
	flags := flag.NewFlagSet("simulate", flag.ContinueOnError)
	seed := flags.Uint64("seed", 1, "the same seed gives the same tables")
	shards := flags.Int("shards", simulate.DefaultShards, "shards")
	flags.DurationVar(&c.Read, "read", c.Read, "a page of due rows")
	flags.DurationVar(&c.ReadRow, "read-row", c.ReadRow, "each row of it")
	flags.DurationVar(&c.Mark, "mark", c.Mark, "a batch of marks")
	flags.DurationVar(&c.MarkRow, "mark-row", c.MarkRow, "each row of it")
	flags.DurationVar(&c.Publish, "publish", c.Publish, "a hand-over")
	flags.DurationVar(&c.Renew, "renew", c.Renew, "a renewal of a member")
	flags.DurationVar(&c.Claim, "claim", c.Claim, "a claim of shards")
	flags.IntVar(&c.Parallel, "parallel", c.Parallel, "statements that the database works on at a time")
	page := flags.String("page", "", "page of the documentation to put the tables into, such as ../docs/scale.md")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *shards < 1 || *shards > 1<<16 {
		return fmt.Errorf("-shards is %d; allowed are 1 to %d", *shards, 1<<16)
	}
	base := simulate.Default(*seed, c)
	base.Shards = int32(*shards) //nolint:gosec // checked
	var b bytes.Buffer
	if err := simulate.Write(&b, base, simulate.Scenarios(base)); err != nil {
		return err
	}
	if *page == "" {
		_, err := b.WriteTo(out)
		return err
	}
	return scale.SimulationPart.Update(*page, b.Bytes())
}

// costs are those that were measured, and what was not is left at its default.
func costs(f *scale.Facts) simulate.Costs {
	c := simulate.DefaultCosts
	for to, us := range map[*time.Duration]float64{
		&c.Read: f.Costs.Read, &c.ReadRow: f.Costs.ReadRow, &c.Mark: f.Costs.Mark, &c.MarkRow: f.Costs.MarkRow, &c.Publish: f.Costs.Publish,
		&c.Renew: f.Costs.Renew, &c.Claim: f.Costs.Claim, &c.Leave: f.Costs.Claim,
	} {
		if us > 0 {
			*to = time.Duration(us * float64(time.Microsecond)).Round(time.Microsecond)
		}
	}
	return c
}
