package schedule_test

import (
	"fmt"
	"time"

	"github.com/waterclock-io/waterclock/job/schedule"
)

func Example() {
	s := schedule.Schedule{Kind: schedule.Cron, Spec: "30 2 * * *", Zone: "Europe/Berlin"}
	c, err := s.Compile()
	if err != nil {
		fmt.Println(err)
		return
	}
	// 02:30 does not exist on the second of these days: it fires when the clock jumps.
	after := time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)
	for range 3 {
		o, ok := c.Next(after)
		if !ok {
			break
		}
		fmt.Println(o.At.Format(time.RFC3339), o.Civil)
		after = o.At
	}
	// Output:
	// 2026-03-28T01:30:00Z 2026-03-28T02:30:00+01:00
	// 2026-03-29T01:00:00Z 2026-03-29T02:30:00+01:00
	// 2026-03-30T00:30:00Z 2026-03-30T02:30:00+02:00
}

func ExampleSchedule_Validate() {
	fmt.Println(schedule.Schedule{Kind: schedule.Cron, Spec: "@every 5m", Zone: "UTC"}.Validate())
	// Output:
	// schedule.cron.spec: "@every 5m" is not cron: use a schedule of kind every; allowed: five fields (minute hour day-of-month month day-of-week) of numbers, names, ranges, steps and lists, or one of @hourly @daily @midnight @weekly @monthly @yearly @annually
}
