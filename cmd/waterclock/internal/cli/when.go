package cli

import (
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/waterclock-io/waterclock/job/fielderr"
	waterclockv1 "github.com/waterclock-io/waterclock/proto/waterclock/v1"
)

// whenFlags say when a job runs.
type whenFlags struct {
	in, every, jitter      span
	at, anchor, start, end instant
	cron, zone             string
}

func (f *whenFlags) add(flags *pflag.FlagSet) {
	flags.Var(&f.in, "in", "once, this long from now")
	flags.Var(&f.at, "at", "once, at this moment")
	flags.Var(&f.every, "every", "every so often, from one second")
	flags.Var(&f.anchor, "anchor", "with --every: the moment that the fires are counted from")
	flags.StringVar(&f.cron, "cron", "", "by a cron expression of five fields, or @hourly, @daily, @weekly, @monthly, @yearly")
	flags.StringVar(&f.zone, "zone", "", "with --cron: time zone such as Europe/Berlin (default UTC)")
	flags.Var(&f.start, "start", "nothing before this moment; empty: no such bound")
	flags.Var(&f.end, "end", "nothing at or after this moment; empty: no such bound")
	flags.Var(&f.jitter, "jitter", "delay each occurrence by an amount below this, always the same for the same occurrence")
}

// apply returns the schedule that the flags make of the one before, or nil where no such flag was given. What was not given stays.
func (f *whenFlags) apply(before *waterclockv1.Schedule, flags *pflag.FlagSet) (*waterclockv1.Schedule, error) {
	if len(given(flags, "in", "at", "every", "anchor", "cron", "zone", "start", "end", "jitter")) == 0 {
		return nil, nil
	}
	kinds := given(flags, "in", "at", "every", "cron")
	if len(kinds) > 1 {
		return nil, &fielderr.FieldError{Field: "schedule", Given: strings.Join(kinds, " and "), Allowed: "one of --in, --at, --every and --cron"}
	}
	s := &waterclockv1.Schedule{}
	if before != nil {
		s = proto.CloneOf(before)
	}
	if len(kinds) > 0 {
		if err := f.kind(s, kinds[0]); err != nil {
			return nil, err
		}
	}
	if len(given(flags, "zone")) > 0 {
		if s.GetCron() == nil {
			return nil, &fielderr.FieldError{Field: "--zone", Given: f.zone, Allowed: "only with --cron"}
		}
		s.GetCron().Zone = f.zone
	}
	if len(given(flags, "anchor")) > 0 {
		if s.GetEvery() == nil {
			return nil, &fielderr.FieldError{Field: "--anchor", Given: f.anchor.String(), Allowed: "only with --every"}
		}
		s.GetEvery().Anchor = timestamp(f.anchor.Time)
	}
	if s.GetKind() == nil {
		s.Kind = &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{}}
	}
	if len(given(flags, "start")) > 0 {
		s.Start = timestamp(f.start.Time)
	}
	if len(given(flags, "end")) > 0 {
		s.End = timestamp(f.end.Time)
	}
	if len(given(flags, "jitter")) > 0 {
		s.Jitter = duration(f.jitter)
	}
	return s, nil
}

func (f *whenFlags) kind(s *waterclockv1.Schedule, flag string) error {
	switch flag {
	case "--in":
		s.Kind = &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{Delay: durationpb.New(time.Duration(f.in))}}
	case "--at":
		s.Kind = &waterclockv1.Schedule_Once{Once: &waterclockv1.Once{At: timestamp(f.at.Time)}}
	case "--every":
		if time.Duration(f.every) < time.Second {
			return &fielderr.FieldError{Field: "--every", Given: time.Duration(f.every).String(), Allowed: "a duration of at least one second"}
		}
		s.Kind = &waterclockv1.Schedule_Every{Every: &waterclockv1.Every{Period: durationpb.New(time.Duration(f.every))}}
	case "--cron":
		zone := s.GetCron().GetZone()
		s.Kind = &waterclockv1.Schedule_Cron{Cron: &waterclockv1.Cron{Spec: f.cron, Zone: zone}}
	}
	return nil
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

func duration(s span) *durationpb.Duration {
	if s == 0 {
		return nil
	}
	return durationpb.New(time.Duration(s))
}
