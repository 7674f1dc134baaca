package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/waterclock-io/waterclock/job/fielderr"
	"github.com/waterclock-io/waterclock/job/schedule"
)

const maxFires = 10_000

func (a *app) scheduleCommand() *cobra.Command {
	return group("schedule", "Look at schedules; needs no server", a.scheduleNextCommand())
}

func (a *app) scheduleNextCommand() *cobra.Command {
	var every span
	var anchor, after instant
	var cron, zone string
	var count int
	c := &cobra.Command{
		Use:   "next (--cron SPEC [--zone ZONE] | --every PERIOD [--anchor TIME]) [--after TIME] [--count N]",
		Short: "Show when a schedule fires next",
		Example: `  waterclock schedule next --cron '0 9 * * 1-5' --zone Europe/Berlin
  waterclock schedule next --every 90s --anchor 2026-04-23T22:00:00Z --count 3 --output json`,
		Args: arguments(0, 0), ValidArgsFunction: cobra.NoFileCompletions,
	}
	c.Flags().StringVar(&cron, "cron", "", "cron expression of five fields, or @hourly, @daily, @weekly, @monthly, @yearly")
	c.Flags().StringVar(&zone, "zone", "UTC", "with --cron: time zone such as Europe/Berlin")
	c.Flags().Var(&every, "every", "period, from one second")
	c.Flags().Var(&anchor, "anchor", "with --every: the moment that the fires are counted from (default --after)")
	c.Flags().Var(&after, "after", "only fires later than this moment (default now)")
	c.Flags().IntVar(&count, "count", 10, "how many fires, up to 10000")
	c.RunE = func(cmd *cobra.Command, _ []string) error {
		if after.IsZero() {
			after.Time = a.Now()
		}
		if count < 1 || count > maxFires {
			return &fielderr.FieldError{Field: "--count", Given: itoa(int32(count)), Allowed: "1 to 10000"} //nolint:gosec // for a message
		}
		s := schedule.Schedule{Kind: schedule.Cron, Spec: cron, Zone: zone}
		switch kinds := given(cmd.Flags(), "cron", "every"); {
		case len(kinds) != 1:
			return &fielderr.FieldError{Field: "schedule", Given: strings.Join(kinds, " and "), Allowed: "one of --cron and --every"}
		case kinds[0] == "--every":
			if wrong := given(cmd.Flags(), "zone"); len(wrong) > 0 {
				return &fielderr.FieldError{Field: "--zone", Given: zone, Allowed: "only with --cron"}
			}
			if anchor.IsZero() {
				anchor = after
			}
			s = schedule.Schedule{Kind: schedule.Every, Period: time.Duration(every), Anchor: anchor.Time}
		case len(given(cmd.Flags(), "anchor")) > 0:
			return &fielderr.FieldError{Field: "--anchor", Given: anchor.String(), Allowed: "only with --every"}
		}
		return a.showFires(s, after.Time, count)
	}
	return c
}

func (a *app) showFires(s schedule.Schedule, after time.Time, count int) error {
	compiled, err := s.Compile()
	if err != nil {
		return err
	}
	location := time.UTC
	if s.Kind == schedule.Cron {
		if location, err = time.LoadLocation(s.Zone); err != nil {
			return fmt.Errorf("zone %q: %w", s.Zone, err)
		}
	}
	fires := make([]string, 0, count)
	rows := make([][]string, 0, count)
	for len(fires) < count {
		fire, found := compiled.Next(after)
		if !found {
			break
		}
		after = fire.At
		fires = append(fires, fire.At.In(location).Format(time.RFC3339Nano))
		rows = append(rows, []string{fire.Civil, fire.At.Format(time.RFC3339Nano), relative(fire.At.Sub(a.Now()))})
	}
	if a.asJSON() {
		b, err := json.MarshalIndent(map[string][]string{"fires": fires}, "", "  ")
		if err != nil {
			return fmt.Errorf("write JSON: %w", err)
		}
		_, err = a.Stdout.Write(append(b, '\n'))
		return err
	}
	return a.table([]string{"CIVIL TIME", "UTC", "FROM NOW"}, rows)
}
